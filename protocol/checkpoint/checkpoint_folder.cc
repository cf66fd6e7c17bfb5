// SPDX-License-Identifier: Apache-2.0
#include "protocol/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/crc32c.h"
#include "protocol/checkpoint/damaged.h"
#include "protocol/checkpoint/durable_file.h"

namespace sluice::protocol {
namespace {

using Json = nlohmann::json;

constexpr absl::string_view kRunRecordName = "run.json";
constexpr absl::string_view kManifestFormat = "sluice checkpoint";
constexpr absl::string_view kRunFormat = "sluice run";
// Version 1 has no `file`. Manifests whose parts do not need `file` use version 1.
constexpr uint32_t kManifestVersion = 2;
constexpr uint32_t kRunVersion = 2;  // Version 1 has no `coordinator`.
constexpr uint64_t kMaxRecordSize = 16 << 20;
constexpr int kMaxJsonDepth = 8;
constexpr size_t kMaxFileName = 240;

std::string Hex(uint64_t value) { return absl::StrFormat("%016x", value); }
std::string Hex(uint32_t value) { return absl::StrFormat("%08x", value); }

bool IsFileName(absl::string_view name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
  return plain && !name.empty() && name.front() != '.' && name.size() <= kMaxFileName &&
         name != kManifestName && !absl::EndsWith(name, kUnfinishedSuffix);
}

bool IsPartName(absl::string_view name) { return IsFileName(name) && name.size() <= kPartNameMax; }

const std::string& FileOf(const CheckpointPart& part) {
  return part.file.empty() ? part.name : part.file;
}

std::string PathOf(absl::string_view dir, uint64_t step, absl::string_view name) {
  return absl::StrCat(StepFolder(dir, step), "/", name);
}

// Returns the checksum over the other fields in canonical form: sorted keys, no white space.
std::string ChecksumOf(const Json& record) {
  Json rest = record;
  rest.erase("checksum");
  const std::string text = rest.dump(-1, ' ', false, Json::error_handler_t::replace);
  return Hex(Crc32c(text));
}

// Formats the record for people: the fields in the given order, and the checksum last.
std::string RecordText(nlohmann::ordered_json record) {
  record["checksum"] = ChecksumOf(Json(record));
  return record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Reads the values of a record whose checksum has been verified. `problem()` describes the first
// invalid value.
class RecordReader {
 public:
  explicit RecordReader(const Json* record) : record_(record) {}

  template <typename T>
  T Number(const char* key) {
    const Json& value = Find(key);
    const bool fits =
        value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<T>::max();
    if (!fits) return Fail<T>(key, "a whole number");
    return value.get<T>();
  }
  template <typename T>
  T HexNumber(const char* key) {
    const Json& value = Find(key);
    T number = 0;
    const bool fits = value.is_string() && absl::SimpleHexAtoi(value.get<std::string>(), &number) &&
                      Hex(number) == value.get<std::string>();
    if (!fits) return Fail<T>(key, "a number in hexadecimal");
    return number;
  }
  std::string Text(const char* key) {
    const Json& value = Find(key);
    if (!value.is_string()) return Fail<std::string>(key, "a text");
    return value.get<std::string>();
  }
  std::string HexText(const char* key) {
    std::string text = Text(key);
    const bool is_hex = text.size() % 2 == 0 && std::all_of(text.begin(), text.end(), [](char c) {
                          return absl::ascii_isxdigit(static_cast<unsigned char>(c));
                        });
    return is_hex ? text : Fail<std::string>(key, "hexadecimal");
  }
  void Refuse(const char* key) { Fail<int>(key, "as Sluice writes it"); }
  bool Bool(const char* key) {
    const Json& value = Find(key);
    if (!value.is_boolean()) return Fail<bool>(key, "true or false");
    return value.get<bool>();
  }
  const Json& List(const char* key) {
    const Json& value = Find(key);
    if (!value.is_array()) Fail<int>(key, "a list");
    return value;
  }
  const Json& Find(const char* key) const {
    static const Json& absent = *new Json();
    if (!record_->is_object()) return absent;
    const auto found = record_->find(key);
    return found == record_->end() ? absent : *found;
  }
  const std::string& problem() const { return problem_; }

 private:
  template <typename T>
  T Fail(const char* key, absl::string_view what) {
    if (problem_.empty()) problem_ = absl::StrCat("its `", key, "` is not ", what);
    return T{};
  }

  const Json* const record_;
  std::string problem_;
};

// Reads a record and verifies that the checksum is right and that this program knows the version.
absl::StatusOr<Json> ReadRecord(const std::string& path, absl::string_view format,
                                uint32_t newest_version) {
  absl::StatusOr<std::string> text = ReadWholeFile(path, kMaxRecordSize);
  if (!text.ok()) return text.status();
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxJsonDepth;
    return depth <= kMaxJsonDepth;
  };
  Json record = Json::parse(*text, watch, /*allow_exceptions=*/false);
  if (too_deep || record.is_discarded() || !record.is_object()) {
    return Damaged(path, "it is not a JSON object as Sluice writes them");
  }
  RecordReader reader(&record);
  if (reader.Text("format") != format) {
    return Damaged(path, absl::StrCat("its `format` is not \"", format, "\""));
  }
  if (reader.Text("checksum") != ChecksumOf(record)) {
    return Damaged(path, "its `checksum` does not match the rest");
  }
  const auto version = reader.Number<uint32_t>("version");
  if (!reader.problem().empty()) return Damaged(path, reader.problem());
  if (version == 0 || version > newest_version) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is of version ", version, ", this program reads version ",
                     newest_version, "; use a program at least as new as the one that wrote it"));
  }
  return record;
}

absl::Status CheckManifest(const CheckpointManifest& manifest) {
  std::set<std::string> names;
  std::set<std::string> files;
  for (const CheckpointPart& part : manifest.parts) {
    absl::Status fits = CheckPartNames(part);
    if (!fits.ok()) return fits;
    if (!names.insert(part.name).second || !files.insert(FileOf(part)).second) {
      return absl::InvalidArgumentError(absl::StrCat("the manifest of step ", manifest.step,
                                                     " lists ", part.name, " or its file twice"));
    }
    if (!part.error.empty() || part.step != manifest.step || part.term != manifest.term) {
      return absl::InvalidArgumentError(
          absl::StrCat("the manifest of step ", manifest.step, " in term ", manifest.term,
                       " lists ", part.name, " of step ", part.step, " in term ", part.term,
                       part.error.empty() ? "" : absl::StrCat(", which failed: ", part.error)));
    }
  }
  return absl::OkStatus();
}

nlohmann::ordered_json ManifestRecord(const CheckpointManifest& manifest) {
  const bool has_files = std::any_of(manifest.parts.begin(), manifest.parts.end(),
                                     [](const CheckpointPart& part) { return !part.file.empty(); });
  nlohmann::ordered_json record = {
      {"format", kManifestFormat},
      {"version", has_files ? kManifestVersion : 1},
      {"job_name", manifest.job_name},
      {"job_hash", Hex(manifest.job_hash)},
      {"job_uid", Hex(manifest.job_uid)},
      {"term", manifest.term},
      {"step", manifest.step},
      {"world_size", manifest.world_size},
      {"shards", manifest.shards},
      {"table_hash", Hex(manifest.table_hash)},
      {"chunk_elements", manifest.layout.chunk_elements},
      {"bundle_elements", manifest.layout.bundle_elements},
      {"software_version", manifest.software_version},
      {"parts", nlohmann::ordered_json::array()},
  };
  if (manifest.layout.fragments != 1) record["fragments"] = manifest.layout.fragments;
  if (manifest.at_shards) record["store"] = NameOf(CheckpointStore::kShards);
  for (const CheckpointPart& part : manifest.parts) {
    nlohmann::ordered_json entry = {
        {"name", part.name}, {"bytes", part.bytes}, {"checksum", Hex(part.checksum)}};
    if (manifest.at_shards) entry["server"] = part.server;
    if (!part.file.empty()) entry["file"] = part.file;
    record["parts"].push_back(std::move(entry));
  }
  return record;
}

// Returns a description of the problem, or an empty string.
std::string ReadParts(const Json& list, CheckpointManifest* manifest) {
  std::set<std::string> names;
  std::set<std::string> files;
  for (const Json& entry : list) {
    RecordReader reader(&entry);
    CheckpointPart& part = manifest->parts.emplace_back();
    part.term = manifest->term;
    part.step = manifest->step;
    part.name = reader.Text("name");
    part.bytes = reader.Number<uint64_t>("bytes");
    part.checksum = reader.HexNumber<uint32_t>("checksum");
    if (manifest->at_shards) part.server = reader.Number<uint32_t>("server");
    if (entry.contains("file")) part.file = reader.Text("file");
    if (!reader.problem().empty()) return absl::StrCat("of a part: ", reader.problem());
    if (!IsPartName(part.name) || !names.insert(part.name).second || !IsFileName(FileOf(part)) ||
        !files.insert(FileOf(part)).second) {
      return absl::StrCat("it lists a part \"", absl::CHexEscape(part.name), "\" in a file \"",
                          absl::CHexEscape(FileOf(part)), "\"");
    }
    if (manifest->at_shards && part.server >= manifest->shards) {
      return absl::StrCat("it lists ", part.name, " with server ", part.server, " of ",
                          manifest->shards);
    }
  }
  // A complete checkpoint has a part of each shard.
  if (manifest->parts.size() >= manifest->shards) return "";
  return absl::StrCat("it lists ", manifest->parts.size(), " parts of ", manifest->shards,
                      " shards");
}

// Joins sizes into one string. As JSON lists, the sizes of a large table would take one line per
// number.
std::string SizesText(const std::vector<int64_t>& sizes) { return absl::StrJoin(sizes, "x"); }

bool ReadSizes(const std::string& text, std::vector<int64_t>* sizes) {
  if (text.empty()) return true;
  for (const absl::string_view size : absl::StrSplit(text, 'x')) {
    if (!absl::SimpleAtoi(size, &sizes->emplace_back())) return false;
  }
  return SizesText(*sizes) == text;
}

// Adds the announced state of the term. Its strings come from other processes and may contain any
// bytes.
void AddAnnouncement(const RunRecord& record, nlohmann::ordered_json* json) {
  (*json)["generation"] = record.generation;
  (*json)["restore_step"] = record.restore_step;
  (*json)["parameters_agree"] = record.parameters_agree;
  nlohmann::ordered_json& members = (*json)["members"] = nlohmann::ordered_json::array();
  for (const RunMember& member : record.members) {
    members.push_back({{"nonce", Hex(member.nonce)},
                       {"incarnation", Hex(member.incarnation)},
                       {"host", absl::CEscape(member.host)},
                       {"pid", member.pid},
                       {"parameters_sha256", absl::BytesToHexString(member.parameters_sha256)}});
  }
  nlohmann::ordered_json& table = (*json)["table"] = nlohmann::ordered_json::array();
  for (const TensorInfo& tensor : record.table) {
    table.push_back({{"name", absl::CEscape(tensor.name)},
                     {"shape", SizesText(tensor.shape)},
                     {"strides", SizesText(tensor.strides)},
                     {"dtype", static_cast<uint32_t>(tensor.dtype)}});
    if (tensor.role != TensorRole::kTrained) {
      table.back()["role"] = static_cast<uint32_t>(tensor.role);
    }
  }
}

void ReadAnnouncement(RecordReader* reader, RunRecord* record) {
  record->generation = reader->Number<uint32_t>("generation");
  if (record->generation == 0) reader->Refuse("generation");
  record->restore_step = reader->Number<uint64_t>("restore_step");
  record->parameters_agree = reader->Bool("parameters_agree");
  for (const Json& entry : reader->List("members")) {
    RecordReader fields(&entry);
    RunMember& member = record->members.emplace_back();
    member.nonce = fields.HexNumber<uint64_t>("nonce");
    member.incarnation = fields.HexNumber<uint64_t>("incarnation");
    member.pid = fields.Number<uint32_t>("pid");
    member.parameters_sha256 = absl::HexStringToBytes(fields.HexText("parameters_sha256"));
    if (!absl::CUnescape(fields.Text("host"), &member.host)) fields.Refuse("host");
    if (!fields.problem().empty()) reader->Refuse("members");
  }
  for (const Json& entry : reader->List("table")) {
    RecordReader fields(&entry);
    TensorInfo& tensor = record->table.emplace_back();
    if (!absl::CUnescape(fields.Text("name"), &tensor.name)) fields.Refuse("name");
    if (!ReadSizes(fields.Text("shape"), &tensor.shape)) fields.Refuse("shape");
    if (!ReadSizes(fields.Text("strides"), &tensor.strides)) fields.Refuse("strides");
    const auto dtype = fields.Number<uint8_t>("dtype");
    if (dtype < 1 || dtype > 3) fields.Refuse("dtype");
    tensor.dtype = static_cast<DType>(dtype);
    if (entry.contains("role")) {
      const auto role = fields.Number<uint8_t>("role");
      if (role != static_cast<uint8_t>(TensorRole::kBuffer)) fields.Refuse("role");
      tensor.role = TensorRole::kBuffer;
    }
    if (!fields.problem().empty()) reader->Refuse("table");
  }
}

// Returns the folder of `part` in a checkpoint whose manifest is in `dir`.
std::string FolderOf(absl::string_view dir, const CheckpointManifest& manifest,
                     const CheckpointPart& part) {
  return manifest.at_shards ? PartsFolder(dir, part.server) : std::string(dir);
}

absl::Status RemoveWhere(absl::string_view dir, uint64_t before,
                         const std::function<bool(uint64_t step)>& unwanted) {
  const absl::StatusOr<std::vector<uint64_t>> steps = ListCheckpoints(dir);
  if (!steps.ok()) return steps.status();
  absl::Status result;
  for (const uint64_t step : *steps) {
    if (step >= before || !unwanted(step)) continue;
    absl::Status removed = RemoveFolder(StepFolder(dir, step));
    if (!removed.ok()) result = std::move(removed);
  }
  return result;
}

}  // namespace

std::string StepFolder(absl::string_view dir, uint64_t step) {
  return absl::StrCat(dir, "/step-", absl::StrFormat("%012d", step));
}

std::string PartsFolder(const CheckpointSpec& checkpoint, uint32_t shard) {
  return checkpoint.at_shards() ? PartsFolder(checkpoint.dir, shard) : checkpoint.dir;
}

std::string PartsFolder(absl::string_view dir, uint32_t shard) {
  return absl::StrCat(dir, "/shard-", shard);
}

absl::Status CheckPartName(absl::string_view name) {
  if (IsPartName(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CHexEscape(name), "\" is not a valid name for a part of a checkpoint: at most ",
      kPartNameMax, " letters, digits, '-', '_' and '.', the first not '.', not ", kManifestName,
      " and not ending in ", kUnfinishedSuffix));
}

absl::Status CheckPartNames(const CheckpointPart& part) {
  absl::Status fits = CheckPartName(part.name);
  if (!fits.ok() || IsFileName(FileOf(part))) return fits;
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CHexEscape(part.file), "\" is not a valid name for the file of ", part.name,
      ": at most ", kMaxFileName, " characters, otherwise as for names of parts"));
}

std::string PartPath(absl::string_view dir, const CheckpointPart& part) {
  return PathOf(dir, part.step, FileOf(part));
}

absl::StatusOr<CheckpointPart> FindPart(const CheckpointManifest& manifest,
                                        absl::string_view name) {
  const auto found = std::find_if(manifest.parts.begin(), manifest.parts.end(),
                                  [&](const CheckpointPart& part) { return part.name == name; });
  if (found != manifest.parts.end()) return *found;
  return absl::DataLossError(absl::StrCat(name, " is not listed in the manifest of the checkpoint ",
                                          "after step ", manifest.step));
}

absl::StatusOr<std::string> ReadPart(absl::string_view dir, const CheckpointManifest& manifest,
                                     absl::string_view name) {
  const absl::StatusOr<CheckpointPart> part = FindPart(manifest, name);
  if (!part.ok()) return part.status();
  return ReadPart(FolderOf(dir, manifest, *part), *part);
}

absl::Status WriteManifest(absl::string_view dir, const CheckpointManifest& manifest,
                           const MayReplace& may_replace) {
  absl::Status fits = CheckManifest(manifest);
  if (!fits.ok()) return fits;
  fits = MakeFolder(StepFolder(dir, manifest.step));
  if (!fits.ok()) return fits;
  const std::string path = PathOf(dir, manifest.step, kManifestName);
  RemoveUnfinished(path);  // This is safe because only one process at a time writes the file.
  return WriteDurably(path, RecordText(ManifestRecord(manifest)), may_replace).status();
}

absl::StatusOr<CheckpointManifest> ReadManifest(absl::string_view dir, uint64_t step) {
  const std::string path = PathOf(dir, step, kManifestName);
  const absl::StatusOr<Json> record = ReadRecord(path, kManifestFormat, kManifestVersion);
  if (!record.ok()) return record.status();
  RecordReader reader(&*record);
  CheckpointManifest manifest;
  manifest.job_name = reader.Text("job_name");
  manifest.job_hash = reader.HexNumber<uint64_t>("job_hash");
  manifest.job_uid = reader.HexNumber<uint64_t>("job_uid");
  manifest.term = reader.Number<uint32_t>("term");
  manifest.step = reader.Number<uint64_t>("step");
  manifest.world_size = reader.Number<uint32_t>("world_size");
  manifest.shards = reader.Number<uint32_t>("shards");
  manifest.table_hash = reader.HexNumber<uint64_t>("table_hash");
  manifest.layout.chunk_elements = reader.Number<uint32_t>("chunk_elements");
  manifest.layout.bundle_elements = reader.Number<uint32_t>("bundle_elements");
  const bool whole = reader.Find("fragments").is_null();
  manifest.layout.fragments = whole ? 1 : reader.Number<uint32_t>("fragments");
  manifest.software_version = reader.Text("software_version");
  if (!reader.Find("store").is_null()) {
    const std::string store = reader.Text("store");
    if (reader.problem().empty() &&
        FindByName<CheckpointStore>(store) != CheckpointStore::kShards) {
      return Damaged(path, absl::StrCat("its `store` is \"", absl::CHexEscape(store), "\""));
    }
    manifest.at_shards = true;
  }
  const Json& parts = reader.List("parts");
  if (!reader.problem().empty()) return Damaged(path, reader.problem());
  const std::string problem = ReadParts(parts, &manifest);
  if (!problem.empty()) return Damaged(path, problem);
  if (manifest.step != step) {
    return Damaged(path, absl::StrCat("it is of step ", manifest.step));
  }
  return manifest;
}

absl::Status VerifyCheckpoint(absl::string_view dir, const CheckpointManifest& manifest,
                              const std::function<bool(uint32_t server)>& servers) {
  for (const CheckpointPart& part : manifest.parts) {
    if (manifest.at_shards && servers && !servers(part.server)) continue;
    const absl::Status good = VerifyPart(FolderOf(dir, manifest, part), part);
    if (!good.ok()) return good;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> ListCheckpoints(absl::string_view dir) {
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(std::string(dir));
  if (absl::IsNotFound(names.status())) return std::vector<uint64_t>();
  if (!names.ok()) return names.status();
  std::vector<uint64_t> steps;
  for (const std::string& name : *names) {
    uint64_t step = 0;
    const bool is_step = absl::StartsWith(name, "step-") &&
                         absl::SimpleAtoi(name.substr(5), &step) &&
                         StepFolder("", step) == absl::StrCat("/", name);
    if (is_step) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::Status RemoveCheckpoint(absl::string_view dir, uint64_t step) {
  const std::string folder = StepFolder(dir, step);
  absl::Status removed = RemoveDurably(absl::StrCat(folder, "/", kManifestName));
  if (!removed.ok()) return removed;
  return RemoveFolder(folder);
}

absl::Status RemoveOthers(absl::string_view dir, const std::vector<uint64_t>& steps,
                          uint64_t before) {
  return RemoveWhere(dir, before, [&](uint64_t step) {
    return std::find(steps.begin(), steps.end(), step) == steps.end();
  });
}

absl::Status RemoveIncomplete(absl::string_view dir, uint64_t before) {
  return RemoveWhere(dir, before, [&](uint64_t step) {
    return absl::IsNotFound(StatFile(PathOf(dir, step, kManifestName)).status());
  });
}

absl::Status WriteRunRecord(absl::string_view dir, const RunRecord& record,
                            const MayReplace& may_replace) {
  absl::Status made = MakeFolder(std::string(dir));
  if (!made.ok()) return made;
  nlohmann::ordered_json json = {{"format", kRunFormat},
                                 {"version", kRunVersion},
                                 {"job_name", record.job_name},
                                 {"job_uid", Hex(record.job_uid)},
                                 {"term", record.term},
                                 {"finished", record.finished},
                                 {"coordinator", record.coordinator_incarnation}};
  const nlohmann::ordered_json plain = json;
  if (record.generation > 0) AddAnnouncement(record, &json);
  std::string text = RecordText(std::move(json));
  // If the record is too large, it omits the announcement. A restarted coordinator then treats the
  // term as not announced and begins the next one. This loses more steps but is correct.
  if (text.size() > kMaxRecordSize) text = RecordText(plain);
  const std::string path = absl::StrCat(dir, "/", kRunRecordName);
  RemoveUnfinished(path);  // This is safe because only one process at a time writes the file.
  return WriteDurably(path, text, may_replace).status();
}

absl::StatusOr<RunRecord> ReadRunRecord(absl::string_view dir) {
  const std::string path = absl::StrCat(dir, "/", kRunRecordName);
  const absl::StatusOr<Json> read = ReadRecord(path, kRunFormat, kRunVersion);
  if (absl::IsDataLoss(read.status())) {
    return absl::DataLossError(
        absl::StrCat(read.status().message(),
                     "; restore a copy of it, or start again in another checkpoint.dir"));
  }
  if (!read.ok()) return read.status();
  RecordReader reader(&*read);
  RunRecord record;
  record.job_name = reader.Text("job_name");
  record.job_uid = reader.HexNumber<uint64_t>("job_uid");
  record.term = reader.Number<uint32_t>("term");
  record.finished = reader.Bool("finished");
  if (read->contains("coordinator")) {
    record.coordinator_incarnation = reader.Number<uint64_t>("coordinator");
  }
  if (read->contains("generation")) ReadAnnouncement(&reader, &record);
  if (!reader.problem().empty()) return Damaged(path, reader.problem());
  return record;
}

}  // namespace sluice::protocol
