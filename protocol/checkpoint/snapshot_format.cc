// SPDX-License-Identifier: Apache-2.0
// Format of a snapshot file, which docs/checkpoints.md defines:
//
//   header   := magic version kind sections file_size crc   over the header before it
//   section  := id crc payload_size payload                 crc over id, payload_size and payload
//
// Every value has exactly one encoding. Therefore, if Parse accepts bytes, Format returns the same
// bytes for the parsed snapshot.
#include "protocol/checkpoint/snapshot_format.h"

#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "protocol/checkpoint/snapshot_pieces.h"

namespace sluice::protocol {
namespace {

constexpr char kMagic[] = {'S', 'L', 'U', 'I', 'C', 'E', 'C', 'P'};
// A file gets the lowest version that supports its contents. Version 1 has no parameters, plans or
// momenta.
constexpr uint16_t kFirstVersion = 1;
constexpr uint16_t kParameterVersion = 2;  // Adds two sections for shards with parameters.
constexpr uint16_t kPlansVersion = 3;      // Adds one section for jobs that make plans.
constexpr uint16_t kVersion = 4;           // Adds a last section for plans with a momentum.
constexpr size_t kHeaderSize = 28;
constexpr size_t kHeaderChecked = 24;  // Number of header bytes that the header's checksum covers.
constexpr size_t kSectionHeaderSize = 16;

enum class Kind : uint16_t { kShard = 1, kWorker = 2 };

enum class SectionId : uint32_t {
  kIdentity = 1,
  kVersions = 2,
  kCompressor = 3,
  kAggregators = 4,
  kTrainer = 5,
  kReplica = 6,
  kClocks = 7,
  kPlans = 8,
  kMomenta = 9,
};

constexpr SectionId kShardSections[] = {
    SectionId::kIdentity, SectionId::kVersions, SectionId::kCompressor, SectionId::kAggregators,
    SectionId::kReplica,  SectionId::kClocks,   SectionId::kPlans,      SectionId::kMomenta};
constexpr size_t kFirstShardSections = 4;      // Number of sections in version 1.
constexpr size_t kParameterShardSections = 6;  // Number of sections in version 2.
constexpr size_t kPlansShardSections = 7;      // Number of sections in version 3.
constexpr SectionId kWorkerSections[] = {SectionId::kIdentity, SectionId::kCompressor,
                                         SectionId::kTrainer, SectionId::kPlans,
                                         SectionId::kMomenta};
constexpr size_t kFirstWorkerSections = 3;  // Number of sections in versions 1 and 2.
constexpr size_t kPlansWorkerSections = 4;  // Number of sections in version 3.

constexpr size_t kIdentitySize = 24;

absl::Span<const SectionId> SectionsOf(Kind kind, uint16_t version) {
  const absl::Span<const SectionId> of_worker = kWorkerSections;
  const absl::Span<const SectionId> of_shard = kShardSections;
  if (kind == Kind::kWorker) {
    if (version < kPlansVersion) return of_worker.first(kFirstWorkerSections);
    return version < kVersion ? of_worker.first(kPlansWorkerSections) : of_worker;
  }
  if (version == kFirstVersion) return of_shard.first(kFirstShardSections);
  if (version == kParameterVersion) return of_shard.first(kParameterShardSections);
  return version < kVersion ? of_shard.first(kPlansShardSections) : of_shard;
}

const char* KindName(Kind kind) { return kind == Kind::kShard ? "shard" : "worker"; }

const char* SectionName(SectionId id) {
  switch (id) {
    case SectionId::kIdentity:
      return "identity";
    case SectionId::kVersions:
      return "versions";
    case SectionId::kCompressor:
      return "compressor";
    case SectionId::kAggregators:
      return "aggregators";
    case SectionId::kTrainer:
      return "trainer";
    case SectionId::kReplica:
      return "replica";
    case SectionId::kClocks:
      return "clocks";
    case SectionId::kPlans:
      return "plans";
    case SectionId::kMomenta:
      return "momenta";
  }
  return "unknown";
}

absl::Span<const std::byte> AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// --- Writing ---

template <typename T>
void Put(T value, size_t at, std::string* out) {
  std::memcpy(out->data() + at, &value, sizeof(T));
}

void AppendIdentity(uint64_t job_uid, uint64_t step, uint32_t term, uint32_t number,
                    std::string* out) {
  Append(job_uid, out);
  Append(step, out);
  Append(term, out);
  Append(number, out);
}

// Builds the whole file in one string, allocated once. Sections are written in place.
class FileWriter {
 public:
  FileWriter(Kind kind, uint16_t version, size_t payload_size)
      : size_(kHeaderSize + kSectionHeaderSize * SectionsOf(kind, version).size() + payload_size) {
    out_.reserve(size_);
    out_.append(kMagic, sizeof(kMagic));
    Append(version, &out_);
    Append(kind, &out_);
    Append(static_cast<uint32_t>(SectionsOf(kind, version).size()), &out_);
    Append(uint64_t{0}, &out_);
    Append(uint32_t{0}, &out_);
  }

  template <typename Fill>
  void Section(SectionId id, const Fill& fill) {
    const size_t at = out_.size();
    Append(id, &out_);
    Append(uint32_t{0}, &out_);
    Append(uint64_t{0}, &out_);
    fill(&out_);
    Put(uint64_t{out_.size() - at - kSectionHeaderSize}, at + 8, &out_);
    const absl::Span<const std::byte> bytes = AsBytes(out_);
    const uint32_t of_id = Crc32c(bytes.subspan(at, 4));
    Put(ExtendCrc32c(of_id, bytes.subspan(at + 8)), at + 4, &out_);
  }

  std::string Finish() {
    Check(out_.size() == size_, "a snapshot takes the bytes that were reserved for it");
    Put(uint64_t{out_.size()}, 16, &out_);
    Put(Crc32c(AsBytes(out_).first(kHeaderChecked)), kHeaderChecked, &out_);
    return std::move(out_);
  }

 private:
  const size_t size_;
  std::string out_;
};

// --- Reading ---

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the snapshot is damaged: ", what));
}

// The payload of each section, after all checksums have been verified.
using Sections = std::map<SectionId, absl::Span<const std::byte>>;

// Checks the header and returns the file's version.
absl::StatusOr<uint16_t> CheckHeader(absl::string_view bytes, Kind kind) {
  if (bytes.size() < sizeof(kMagic) || std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    const std::string start(bytes.substr(0, sizeof(kMagic)));
    return absl::InvalidArgumentError(
        absl::StrCat("not a snapshot: it begins with \"", absl::CHexEscape(start), "\", not \"",
                     absl::string_view(kMagic, sizeof(kMagic)), "\""));
  }
  if (bytes.size() < kHeaderSize) {
    return Damaged(absl::StrCat("it ends within its header, after ", bytes.size(), " bytes"));
  }
  ByteReader reader(AsBytes(bytes).subspan(sizeof(kMagic)));
  const auto version = reader.Read<uint16_t>();
  const auto found_kind = reader.Read<uint16_t>();
  const auto found_sections = reader.Read<uint32_t>();
  const auto file_size = reader.Read<uint64_t>();
  if (reader.Read<uint32_t>() != Crc32c(AsBytes(bytes).first(kHeaderChecked))) {
    return Damaged("the checksum of its header does not match");
  }
  if (version < kFirstVersion || version > kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the snapshot is of version ", version, ", this program reads up to version ",
                     kVersion, "; use a program at least as new as the one that wrote it"));
  }
  if (found_kind != static_cast<uint16_t>(kind)) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a ", KindName(kind), "'s snapshot: of kind ", found_kind,
                     ", should be of kind ", static_cast<uint16_t>(kind)));
  }
  if (file_size != bytes.size()) {
    return Damaged(absl::StrCat("it has ", bytes.size(), " bytes, its header says ", file_size));
  }
  const size_t sections = SectionsOf(kind, version).size();
  if (found_sections != sections) {
    return Damaged(absl::StrCat("it has ", found_sections, " sections, should have ", sections));
  }
  return version;
}

// Reads the sections that the file's version defines.
absl::StatusOr<Sections> ReadSections(absl::string_view bytes, Kind kind) {
  const absl::StatusOr<uint16_t> version = CheckHeader(bytes, kind);
  if (!version.ok()) return version.status();
  Sections sections;
  absl::Span<const std::byte> rest = AsBytes(bytes).subspan(kHeaderSize);
  for (const SectionId id : SectionsOf(kind, *version)) {
    ByteReader reader(rest);
    const auto found = reader.Read<uint32_t>();
    const auto checksum = reader.Read<uint32_t>();
    const auto size = reader.Read<uint64_t>();
    const absl::Span<const std::byte> payload = reader.ReadBytes(size);
    if (!reader.ok()) {
      return Damaged(absl::StrCat("it ends within section ", SectionName(id)));
    }
    const uint32_t of_id = Crc32c(rest.first(4));
    if (checksum != ExtendCrc32c(of_id, rest.subspan(8, 8 + payload.size()))) {
      return Damaged(absl::StrCat("the checksum of section ", SectionName(id), " does not match"));
    }
    if (found != static_cast<uint32_t>(id)) {
      return Damaged(
          absl::StrCat("section ", found, " appears where ", SectionName(id), " should"));
    }
    sections[id] = payload;
    rest.remove_prefix(kSectionHeaderSize + payload.size());
  }
  if (!rest.empty()) {
    return Damaged(absl::StrCat(rest.size(), " bytes follow its last section"));
  }
  return sections;
}

absl::Status ReadNumbers(ByteReader* reader, std::vector<uint64_t>* numbers) {
  const size_t count = reader->remaining() / sizeof(uint64_t);
  const absl::Span<const std::byte> bytes = reader->ReadBytes(count * sizeof(uint64_t));
  numbers->resize(count);
  if (count > 0) std::memcpy(numbers->data(), bytes.data(), bytes.size());
  return absl::OkStatus();
}

// Calls `read` with a ByteReader*. `read` must consume the whole section.
template <typename Read>
absl::Status ReadSection(const Sections& sections, SectionId id, const Read& read) {
  ByteReader reader(sections.at(id));
  const absl::Status status = read(&reader);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("the snapshot's section ", SectionName(id),
                                                    " is wrong: ", status.message()));
  }
  if (!reader.ok() || reader.remaining() > 0) {
    return Damaged(absl::StrCat("section ", SectionName(id), " has ", sections.at(id).size(),
                                " bytes, which its content does not fill exactly"));
  }
  return absl::OkStatus();
}

template <typename Snapshot>
absl::Status ReadIdentity(const Sections& sections, Snapshot* snapshot, uint32_t* number) {
  return ReadSection(sections, SectionId::kIdentity, [&](ByteReader* reader) {
    snapshot->job_uid = reader->Read<uint64_t>();
    snapshot->step = reader->Read<uint64_t>();
    snapshot->term = reader->Read<uint32_t>();
    *number = reader->Read<uint32_t>();
    return absl::OkStatus();
  });
}

// Returns the version for a job that makes plans, so `plans` is not empty.
uint16_t VersionOf(const std::vector<CompressionPlan>& plans) {
  return HaveMomentum(plans) ? kVersion : kPlansVersion;
}

size_t SizeOfPlans(const std::vector<CompressionPlan>& plans) {
  return SizeOf(plans) + (HaveMomentum(plans) ? plans.size() * sizeof(float) : 0);
}

void WritePlans(const std::vector<CompressionPlan>& plans, FileWriter* file) {
  file->Section(SectionId::kPlans, [&](std::string* out) { AppendPlans(plans, out); });
  if (!HaveMomentum(plans)) return;
  file->Section(SectionId::kMomenta, [&](std::string* out) { AppendMomenta(plans, out); });
}

absl::Status ReadMomentaOf(const Sections& sections, std::vector<CompressionPlan>* plans) {
  if (!sections.contains(SectionId::kMomenta)) return absl::OkStatus();
  return ReadSection(sections, SectionId::kMomenta,
                     [&](ByteReader* reader) { return ReadMomenta(reader, plans); });
}

}  // namespace

std::string FormatShardSnapshot(const ShardSnapshot& snapshot) {
  const SpecTexts specs = CollectSpecs(snapshot.downlink);
  const bool has_plans = !snapshot.plans.empty();
  const bool keeps_parameters = has_plans || !snapshot.replica.empty() || !snapshot.clocks.empty();
  size_t size = kIdentitySize + snapshot.versions.size() * sizeof(uint64_t) +
                SizeOf(snapshot.downlink, specs) + SizeOf(snapshot.aggregators);
  if (keeps_parameters) {
    size += SizeOf(snapshot.replica) + snapshot.clocks.size() * sizeof(uint64_t);
  }
  if (has_plans) size += SizeOfPlans(snapshot.plans);
  const uint16_t with_parameters = keeps_parameters ? kParameterVersion : kFirstVersion;
  FileWriter file(Kind::kShard, has_plans ? VersionOf(snapshot.plans) : with_parameters, size);
  file.Section(SectionId::kIdentity, [&](std::string* out) {
    AppendIdentity(snapshot.job_uid, snapshot.step, snapshot.term, snapshot.shard, out);
  });
  file.Section(SectionId::kVersions, [&](std::string* out) {
    for (const uint64_t version : snapshot.versions) Append(version, out);
  });
  file.Section(SectionId::kCompressor,
               [&](std::string* out) { AppendCompressor(snapshot.downlink, specs, out); });
  file.Section(SectionId::kAggregators,
               [&](std::string* out) { AppendStates(snapshot.aggregators, out); });
  if (!keeps_parameters) return file.Finish();
  file.Section(SectionId::kReplica, [&](std::string* out) { AppendStates(snapshot.replica, out); });
  file.Section(SectionId::kClocks, [&](std::string* out) {
    for (const uint64_t clock : snapshot.clocks) Append(clock, out);
  });
  if (!has_plans) return file.Finish();
  WritePlans(snapshot.plans, &file);
  return file.Finish();
}

std::string FormatWorkerSnapshot(const WorkerSnapshot& snapshot) {
  const SpecTexts specs = CollectSpecs(snapshot.uplink);
  const bool has_plans = !snapshot.plans.empty();
  FileWriter file(Kind::kWorker, has_plans ? VersionOf(snapshot.plans) : kFirstVersion,
                  kIdentitySize + SizeOf(snapshot.uplink, specs) + snapshot.trainer.size() +
                      (has_plans ? SizeOfPlans(snapshot.plans) : 0));
  file.Section(SectionId::kIdentity, [&](std::string* out) {
    AppendIdentity(snapshot.job_uid, snapshot.step, snapshot.term, snapshot.rank, out);
  });
  file.Section(SectionId::kCompressor,
               [&](std::string* out) { AppendCompressor(snapshot.uplink, specs, out); });
  file.Section(SectionId::kTrainer, [&](std::string* out) { out->append(snapshot.trainer); });
  if (!has_plans) return file.Finish();
  WritePlans(snapshot.plans, &file);
  return file.Finish();
}

absl::StatusOr<ShardSnapshot> ParseShardSnapshot(absl::string_view bytes) {
  const absl::StatusOr<Sections> sections = ReadSections(bytes, Kind::kShard);
  if (!sections.ok()) return sections.status();
  ShardSnapshot snapshot;
  absl::Status read = ReadIdentity(*sections, &snapshot, &snapshot.shard);
  if (!read.ok()) return read;
  read = ReadSection(*sections, SectionId::kVersions,
                     [&](ByteReader* reader) { return ReadNumbers(reader, &snapshot.versions); });
  if (!read.ok()) return read;
  read = ReadSection(*sections, SectionId::kCompressor, [&](ByteReader* reader) {
    return ReadCompressor(reader, &snapshot.downlink);
  });
  if (!read.ok()) return read;
  read = ReadSection(*sections, SectionId::kAggregators,
                     [&](ByteReader* reader) { return ReadStates(reader, &snapshot.aggregators); });
  if (!read.ok()) return read;
  if (!sections->contains(SectionId::kReplica)) return snapshot;
  read = ReadSection(*sections, SectionId::kReplica,
                     [&](ByteReader* reader) { return ReadStates(reader, &snapshot.replica); });
  if (!read.ok()) return read;
  read = ReadSection(*sections, SectionId::kClocks,
                     [&](ByteReader* reader) { return ReadNumbers(reader, &snapshot.clocks); });
  if (!read.ok()) return read;
  if (!sections->contains(SectionId::kPlans)) return snapshot;
  read = ReadSection(*sections, SectionId::kPlans,
                     [&](ByteReader* reader) { return ReadPlans(reader, &snapshot.plans); });
  if (read.ok()) read = ReadMomentaOf(*sections, &snapshot.plans);
  if (!read.ok()) return read;
  return snapshot;
}

absl::StatusOr<WorkerSnapshot> ParseWorkerSnapshot(absl::string_view bytes) {
  const absl::StatusOr<Sections> sections = ReadSections(bytes, Kind::kWorker);
  if (!sections.ok()) return sections.status();
  WorkerSnapshot snapshot;
  absl::Status read = ReadIdentity(*sections, &snapshot, &snapshot.rank);
  if (!read.ok()) return read;
  read = ReadSection(*sections, SectionId::kCompressor,
                     [&](ByteReader* reader) { return ReadCompressor(reader, &snapshot.uplink); });
  if (!read.ok()) return read;
  const absl::Span<const std::byte> trainer = sections->at(SectionId::kTrainer);
  snapshot.trainer.assign(reinterpret_cast<const char*>(trainer.data()), trainer.size());
  if (!sections->contains(SectionId::kPlans)) return snapshot;
  read = ReadSection(*sections, SectionId::kPlans,
                     [&](ByteReader* reader) { return ReadPlans(reader, &snapshot.plans); });
  if (read.ok()) read = ReadMomentaOf(*sections, &snapshot.plans);
  if (!read.ok()) return read;
  return snapshot;
}

}  // namespace sluice::protocol
