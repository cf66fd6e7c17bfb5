// Files that are whole or absent, whatever happens in between: power cuts, full disks, kill -9.
// Errors name the file. RESOURCE_EXHAUSTED: the disk or a quota is full; NOT_FOUND: what was to be
// read is not there; DATA_LOSS: the device cannot give back what it was given; UNAVAILABLE: any
// other trouble.
// Thread-safe, but for two writers of one path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::protocol {

// A file that is being written has this behind its name; a crash can leave it.
inline constexpr absl::string_view kUnfinishedSuffix = ".unfinished";

// With all folders above it, each durable.
absl::Status MakeFolder(const std::string& path);

// Asked when all is ready for a file's name to be taken; an error leaves what is there as it is.
using MayReplace = std::function<absl::Status()>;

// A file that is written piece by piece, under another name until it is finished. Not thread-safe.
class DurableFile {
 public:
  // `path`: what it is to be called.
  static absl::StatusOr<DurableFile> Create(const std::string& path);
  // Unless it was finished, nothing of it stays.
  ~DurableFile();
  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;

  absl::Status Append(absl::string_view bytes);
  uint32_t checksum() const { return checksum_; }  // Of what was appended.
  // As WriteDurably. This or FinishBeside comes last; once.
  absl::StatusOr<uint32_t> Finish(const MayReplace& may_replace = nullptr);
  // Never changes the bytes under a name: where its own has other bytes, or the file system cannot
  // tell, it is called by its size and checksum too (OwnPath). Gives the path that has the bytes.
  absl::StatusOr<std::string> FinishBeside();

 private:
  DurableFile(std::string path, std::string unfinished, int descriptor)
      : path_(std::move(path)), unfinished_(std::move(unfinished)), descriptor_(descriptor) {}

  absl::Status Sync();
  absl::Status ReadBack() const;
  bool HasTheSame(const std::string& path) const;
  absl::Status Rename(const std::string& path);

  std::string path_;
  std::string unfinished_;  // Empty: it has its name, or was moved from.
  int descriptor_;
  uint64_t bytes_ = 0;
  uint32_t checksum_ = 0;
};

// Writes aside, makes the file durable, reads it back, renames it to `path`, makes the folder
// durable. DATA_LOSS: it came back different. Until it is renamed, what was at `path` stays. Gives
// its CRC-32C.
absl::StatusOr<uint32_t> WriteDurably(const std::string& path, absl::string_view bytes,
                                      const MayReplace& may_replace = nullptr);

// `path` with a size and a checksum before its extension: two files that are called so are the same
// to everybody who compares these.
std::string OwnPath(const std::string& path, uint64_t bytes, uint32_t checksum);

// `path` becomes another name of the file `existing`, in the same folder, whatever it was before;
// where the file system has no second names, a link that leads there.
absl::Status NameToo(const std::string& existing, const std::string& path);

struct FileFacts {
  uint64_t bytes = 0;
  uint32_t checksum = 0;  // CRC-32C.
};
// Without the checksum.
absl::StatusOr<FileFacts> StatFile(const std::string& path);
// Reads the file through, in little memory.
absl::StatusOr<FileFacts> ChecksumFile(const std::string& path);

// Calls `take` for each piece of at most `piece_bytes`, until it gives an error.
absl::Status ReadPieces(const std::string& path, size_t piece_bytes,
                        const std::function<absl::Status(absl::string_view)>& take);

// DATA_LOSS if it is larger than `limit`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t limit);

// Names of what lies in it, in no order.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

// What writers of `path` that were killed left beside it. Only where no other may be writing now.
void RemoveUnfinished(const std::string& path);

// OK if it is not there.
absl::Status RemoveDurably(const std::string& path);
// With all that is in it; links are not followed.
absl::Status RemoveFolder(const std::string& path);

}  // namespace sluice::protocol
