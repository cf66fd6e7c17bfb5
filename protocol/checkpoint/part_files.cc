// SPDX-License-Identifier: Apache-2.0
// Writes, reads and checks the files of parts.
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/crc32c.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/checkpoint/damaged.h"
#include "protocol/checkpoint/durable_file.h"

namespace sluice::protocol {
namespace {

absl::Status CheckSize(absl::string_view path, uint64_t found, const CheckpointPart& part) {
  if (found == part.bytes) return absl::OkStatus();
  return Damaged(path, absl::StrCat("it has ", found, " bytes, the manifest says ", part.bytes));
}

absl::Status CheckChecksum(absl::string_view path, uint32_t found, const CheckpointPart& part) {
  if (found == part.checksum) return absl::OkStatus();
  return Damaged(
      path, absl::StrFormat("its checksum is %08x, the manifest says %08x", found, part.checksum));
}

// Converts the error for a missing file to DATA_LOSS, because a listed part that does not exist is
// lost.
absl::Status PartStatus(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::DataLossError(status.message()) : status;
}

}  // namespace

absl::Status Publish(DurableFile file, CheckpointPart* part) {
  const absl::StatusOr<std::string> path = file.FinishBeside();
  if (!path.ok()) return path.status();
  std::string name = path->substr(path->rfind('/') + 1);
  part->file = name == part->name ? "" : std::move(name);
  return absl::OkStatus();
}

absl::StatusOr<CheckpointPart> WritePart(absl::string_view dir, uint32_t term, uint64_t step,
                                         absl::string_view name, absl::string_view bytes) {
  absl::Status fits = CheckPartName(name);
  if (!fits.ok()) return fits;
  fits = MakeFolder(StepFolder(dir, step));
  if (!fits.ok()) return fits;
  CheckpointPart part;
  part.term = term;
  part.step = step;
  part.name = std::string(name);
  absl::StatusOr<DurableFile> file = DurableFile::Create(PartPath(dir, part));
  if (!file.ok()) return file.status();
  fits = file->Append(bytes);
  if (!fits.ok()) return fits;
  part.bytes = bytes.size();
  part.checksum = file->checksum();
  fits = Publish(*std::move(file), &part);
  if (!fits.ok()) return fits;
  return part;
}

absl::StatusOr<std::string> ReadPart(absl::string_view dir, const CheckpointPart& part) {
  const std::string path = PartPath(dir, part);
  const absl::StatusOr<FileFacts> size = StatFile(path);
  if (!size.ok()) return PartStatus(size.status());
  // The size is checked before a buffer is allocated.
  absl::Status fits = CheckSize(path, size->bytes, part);
  if (!fits.ok()) return fits;
  absl::StatusOr<std::string> bytes = ReadWholeFile(path, part.bytes);
  if (!bytes.ok()) return PartStatus(bytes.status());
  fits = CheckPartFacts(path, bytes->size(), Crc32c(*bytes), part);
  if (!fits.ok()) return fits;
  return bytes;
}

absl::Status CheckPartFacts(absl::string_view where, uint64_t bytes, uint32_t checksum,
                            const CheckpointPart& part) {
  const absl::Status fits = CheckSize(where, bytes, part);
  return fits.ok() ? CheckChecksum(where, checksum, part) : fits;
}

absl::Status VerifyPart(absl::string_view dir, const CheckpointPart& part) {
  const std::string path = PartPath(dir, part);
  const absl::StatusOr<FileFacts> size = StatFile(path);
  if (!size.ok()) return PartStatus(size.status());
  // The size is checked before the whole file is read.
  absl::Status fits = CheckSize(path, size->bytes, part);
  if (!fits.ok()) return fits;
  const absl::StatusOr<FileFacts> found = ChecksumFile(path);
  if (!found.ok()) return PartStatus(found.status());
  return CheckPartFacts(path, found->bytes, found->checksum, part);
}

}  // namespace sluice::protocol
