// SPDX-License-Identifier: Apache-2.0
// Files that are complete or absent even after a power cut, a full disk or kill -9. Errors name the
// file. Codes are RESOURCE_EXHAUSTED if the disk or a quota is full, NOT_FOUND if the file to read
// is missing, DATA_LOSS if the device cannot return the bytes it was given, and UNAVAILABLE for
// other problems. The functions are thread-safe, except that two threads must not write the same
// path.
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

// Suffix of a file that is still being written. A crash can leave a file with this suffix behind.
inline constexpr absl::string_view kUnfinishedSuffix = ".unfinished";

// Creates the folder and all its parents, each durably.
absl::Status MakeFolder(const std::string& path);

// Called when a file is ready to take its final name. If the function returns an error, the
// existing file stays unchanged.
using MayReplace = std::function<absl::Status()>;

// A file that is written piece by piece under a temporary name until it is finished. Not
// thread-safe.
class DurableFile {
 public:
  // Creates the temporary file. `path` is the final name.
  static absl::StatusOr<DurableFile> Create(const std::string& path);
  // Removes the temporary file unless Finish or FinishBeside has succeeded.
  ~DurableFile();
  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;

  absl::Status Append(absl::string_view bytes);
  uint32_t checksum() const { return checksum_; }  // The checksum of the appended bytes.
  // Finishes the file in the same way as WriteDurably. Call either this or FinishBeside, once, as
  // the last call.
  absl::StatusOr<uint32_t> Finish(const MayReplace& may_replace = nullptr);
  // Finishes the file without changing the bytes of an existing file. If `path` has a file
  // with different bytes, or if the file system cannot make links, the new file's name also
  // contains its size and checksum (OwnPath). Returns the path of the new file.
  absl::StatusOr<std::string> FinishBeside();

 private:
  DurableFile(std::string path, std::string unfinished, int descriptor)
      : path_(std::move(path)), unfinished_(std::move(unfinished)), descriptor_(descriptor) {}

  absl::Status Sync();
  absl::Status ReadBack() const;
  bool HasTheSame(const std::string& path) const;
  absl::Status Rename(const std::string& path);

  std::string path_;
  std::string unfinished_;  // Empty after the rename or after a move.
  int descriptor_;
  uint64_t bytes_ = 0;
  uint32_t checksum_ = 0;
};

// Writes a temporary file, makes it durable, reads it back, renames it to `path` and makes the
// folder durable. Fails with DATA_LOSS if the bytes read back differ. Until the rename, the old
// file at `path` stays unchanged. Returns the CRC-32C.
absl::StatusOr<uint32_t> WriteDurably(const std::string& path, absl::string_view bytes,
                                      const MayReplace& may_replace = nullptr);

// Returns `path` with the size and the checksum inserted before the extension. Readers that compare
// size and checksum treat two files with the same such name as equal.
std::string OwnPath(const std::string& path, uint64_t bytes, uint32_t checksum);

// Makes `path` a second name of the file `existing` in the same folder. An earlier file at `path`
// is replaced. If the file system has no hard links, `path` becomes a symbolic link.
absl::Status NameToo(const std::string& existing, const std::string& path);

struct FileFacts {
  uint64_t bytes = 0;
  uint32_t checksum = 0;  // CRC-32C.
};
// Returns the facts without the checksum.
absl::StatusOr<FileFacts> StatFile(const std::string& path);
// Reads the whole file piece by piece, with little memory.
absl::StatusOr<FileFacts> ChecksumFile(const std::string& path);

// Calls `take` for each piece of at most `piece_bytes`. Stops if `take` returns an error, and
// returns that error.
absl::Status ReadPieces(const std::string& path, size_t piece_bytes,
                        const std::function<absl::Status(absl::string_view)>& take);

// Fails with DATA_LOSS if the file is larger than `limit`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t limit);

// Returns the names of the folder's entries in no particular order.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

// Removes the temporary files that killed writers of `path` have left behind. Call this only while
// no other process writes `path`.
void RemoveUnfinished(const std::string& path);

// Removes the file durably. Returns OK if the file does not exist.
absl::Status RemoveDurably(const std::string& path);
// Removes a folder with its contents. Links are removed but not followed.
absl::Status RemoveFolder(const std::string& path);

}  // namespace sluice::protocol
