// SPDX-License-Identifier: Apache-2.0
#include "worker/scalars/event_file.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/crc32c.h"
#include "sluice/tensorboard/event.pb.h"

namespace sluice::worker {
namespace {

// TFRecord's checksum: a rotated CRC plus a constant, because CRCs of data that contains CRCs are
// unreliable.
uint32_t MaskedCrc(absl::Span<const std::byte> bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// record := length (8 bytes), its checksum (4), message, its checksum (4); little-endian
std::string Record(const tensorboard::Event& event) {
  const std::string message = event.SerializeAsString();
  const absl::Span<const std::byte> bytes{reinterpret_cast<const std::byte*>(message.data()),
                                          message.size()};
  std::vector<std::byte> record;
  ByteWriter writer(&record);
  writer.Write(uint64_t{message.size()});
  writer.Write(MaskedCrc(record));
  writer.WriteBytes(bytes);
  writer.Write(MaskedCrc(bytes));
  return {reinterpret_cast<const char*>(record.data()), record.size()};
}

tensorboard::Event EventAt(absl::Time now) {
  tensorboard::Event event;
  event.set_wall_time(absl::ToDoubleSeconds(now - absl::UnixEpoch()));
  return event;
}

constexpr int64_t kMicros = 1'000'000;

std::string NameAt(int64_t micros) {
  return absl::StrFormat("events.out.tfevents.%010d.%06d.sluice", micros / kMicros,
                         micros % kMicros);
}

// Returns the creation time of a file with that name in microseconds, or nullopt if it is not an
// EventFile's name.
std::optional<int64_t> TimeOf(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  int64_t seconds = 0;
  int64_t micros = 0;
  if (parts.size() != 6 || !absl::SimpleAtoi(parts[3], &seconds) ||
      !absl::SimpleAtoi(parts[4], &micros) || seconds < 0 || seconds >= int64_t{10'000'000'000}) {
    return std::nullopt;
  }
  micros += seconds * kMicros;
  return NameAt(micros) == name ? std::optional(micros) : std::nullopt;
}

// TensorBoard reads files in the order of their names, so names must ascend even if the clock was
// set back.
std::string NewName(const std::string& folder, absl::Time now) {
  int64_t micros = absl::ToUnixMicros(now);
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::optional<int64_t> other = TimeOf(entry->path().filename().string());
    if (other.has_value()) micros = std::max(micros, *other + 1);
  }
  return NameAt(micros);
}

}  // namespace

absl::StatusOr<EventFile> EventFile::Create(const std::string& folder, absl::Time now,
                                            uint64_t step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot make the folder ", folder, ": ", error.message()));
  }
  absl::StatusOr<AppendedFile> file =
      AppendedFile::Open(absl::StrCat(folder, "/", NewName(folder, now)), /*keep=*/0);
  if (!file.ok()) return file.status();
  tensorboard::Event version = EventAt(now);
  version.set_file_version("brain.Event:2");
  tensorboard::Event start = EventAt(now);
  start.set_step(static_cast<int64_t>(step) + 1);
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  if (absl::Status status = file->Append(Record(version) + Record(start)); !status.ok()) {
    return status;
  }
  return EventFile(*std::move(file));
}

absl::Status EventFile::Append(const ScalarRow& row, absl::Time now) {
  tensorboard::Event event = EventAt(now);
  event.set_step(static_cast<int64_t>(row.step));
  for (const ScalarColumn& column : ScalarColumns()) {
    const std::optional<double>& cell = row.*column.value;
    if (!cell.has_value()) continue;
    tensorboard::Summary::Value* value = event.mutable_summary()->add_value();
    value->set_tag(std::string(column.tag));
    value->set_simple_value(static_cast<float>(*cell * column.tag_scale));
  }
  return file_.Append(Record(event));
}

}  // namespace sluice::worker
