// SPDX-License-Identifier: Apache-2.0
// Fuzzer for folders of checkpoints: any files must give either an error of the kinds that the
// headers promise or values that are written and read back unchanged. A coordinator that opens the
// folder must either refuse it or continue with checkpoints that fit the job. Input: the files of
// the folder, one after another. Each has a byte (its name, modulo the number of names, and bit 7:
// correct its checksum), its size (2 bytes) and its bytes.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "job/job_spec.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "server/rpc/run_folder.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/protocol/checkpoint/snapshot_property.h"

namespace sluice::protocol {
namespace {

using Json = nlohmann::json;

constexpr const char* kNames[] = {"run.json",
                                  "step-000000000001/manifest.json",
                                  "step-000000000002/manifest.json",
                                  "step-000000000001/shard-0-term-0.state",
                                  "step-000000000002/shard-0-term-0.state",
                                  "step-000000000002/parameters.pt",
                                  "shard-0/step-000000000002/shard-0-term-0.state",
                                  "step-18446744073709551615/manifest.json",
                                  "step-000000000003/worker-0-term-0.state.unfinished"};
constexpr int kDepthMax = 16;

// A folder in memory, if this machine has one, because the writers wait for the disk.
class ScratchFolder {
 public:
  ScratchFolder() {
    const std::filesystem::path memory = "/dev/shm";
    const bool usable = std::filesystem::is_directory(memory);
    path_ = (usable ? memory : std::filesystem::temp_directory_path()) / "checkpoint_fuzz_XXXXXX";
    Check(::mkdtemp(path_.data()) != nullptr, "there is a folder for files");
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Gives a record the checksum of its other fields, because an attacker can also compute it.
std::string Sealed(std::string text) {
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kDepthMax;
    return depth <= kDepthMax;
  };
  Json record = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (too_deep || record.is_discarded() || !record.is_object()) return text;
  record.erase("checksum");
  const std::string rest = record.dump(-1, ' ', false, Json::error_handler_t::replace);
  record["checksum"] = absl::StrFormat("%08x", Crc32c(rest));
  return record.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void WriteFiles(FuzzInput* input, const std::string& dir) {
  while (!input->empty()) {
    const uint8_t kind = input->Byte();
    const absl::Span<const std::byte> bytes = input->Bytes(input->Short());
    const std::filesystem::path path =
        std::filesystem::path(dir) / kNames[(kind & 0x7F) % std::size(kNames)];
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if ((kind & 0x80) != 0 && path.extension() == ".json") text = Sealed(std::move(text));
    if ((kind & 0x80) != 0 && path.extension() == ".state") SealSnapshot(&text);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
}

void CheckError(const absl::Status& status) {
  Check(absl::IsNotFound(status) || absl::IsDataLoss(status) || absl::IsFailedPrecondition(status),
        absl::StrCat("errors are of the kinds that the header promises: ", status.ToString()));
  Check(!status.message().empty(), "errors say something");
}

void CheckRunRecord(const std::string& dir, const std::string& copy) {
  const absl::StatusOr<RunRecord> record = ReadRunRecord(dir);
  if (!record.ok()) return CheckError(record.status());
  Check(WriteRunRecord(copy, *record).ok(), "a record that was read can be written");
  const absl::StatusOr<RunRecord> again = ReadRunRecord(copy);
  Check(again.ok() && *again == *record, "a record is read as it was written");
}

void CheckManifest(const std::string& dir, uint64_t step, const std::string& copy) {
  const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(dir, step);
  if (!manifest.ok()) return CheckError(manifest.status());
  Check(manifest->step == step, "a folder has the manifest of its own step");
  Check(manifest->parts.size() >= manifest->shards, "a checkpoint has a part of each shard");
  const absl::Status written = WriteManifest(copy, *manifest);
  Check(written.ok(), absl::StrCat("a manifest that was read can be written: ", written.message()));
  const absl::StatusOr<CheckpointManifest> again = ReadManifest(copy, step);
  Check(again.ok() && *again == *manifest, "a manifest is read as it was written");
  bool intact = true;
  for (const CheckpointPart& part : manifest->parts) {
    Check(CheckPartNames(part).ok(), "a manifest lists files of its folder");
    const absl::StatusOr<std::string> bytes = ReadPart(dir, *manifest, part.name);
    intact = intact && bytes.ok();
    if (!bytes.ok()) {
      CheckError(bytes.status());
    } else {
      Check(bytes->size() == part.bytes && Crc32c(SnapshotBytes(*bytes)) == part.checksum,
            "a part has the size and the checksum of the manifest");
      CheckAnySnapshot(*bytes);
    }
  }
  Check(VerifyCheckpoint(dir, *manifest).ok() == intact, "verification reads what a restore reads");
}

void CheckCoordinator(const std::string& dir, CheckpointStore store) {
  job::JobSpec job;
  job.name = "demo";
  job.shards = 1;
  job.checkpoint.dir = dir;
  job.checkpoint.store = store;
  job.exchange.compression.layout = {.chunk_elements = 512, .bundle_elements = 1024};
  LogOptions quiet;
  quiet.sink = [](LogLevel, absl::string_view, absl::string_view) {};
  const auto folder = server::RunFolder::Open(job, Logger("fuzz", quiet));
  if (!folder.ok()) return CheckError(folder.status());
  uint64_t last = 0;
  for (const CheckpointManifest& manifest : (*folder)->checkpoints()) {
    Check(manifest.step > last, "checkpoints are in the order of their steps");
    last = manifest.step;
    Check((*folder)->run().has_value() && manifest.job_uid == (*folder)->run()->job_uid,
          "checkpoints are of the run");
    Check(manifest.shards == job.shards, "checkpoints fit the job");
  }
  if ((*folder)->run().has_value()) Check((*folder)->run()->job_name == job.name, "it is this job");
}

void CheckFolder(FuzzInput input) {
  const ScratchFolder folder;
  const ScratchFolder copy;
  WriteFiles(&input, folder.path());
  CheckRunRecord(folder.path(), copy.path());
  const absl::StatusOr<std::vector<uint64_t>> steps = ListCheckpoints(folder.path());
  Check(steps.ok(), "a folder can be listed");
  for (const uint64_t step : *steps) CheckManifest(folder.path(), step, copy.path());
  for (const CheckpointStore store : {CheckpointStore::kPath, CheckpointStore::kShards}) {
    CheckCoordinator(folder.path(), store);
  }
}

}  // namespace
}  // namespace sluice::protocol

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::protocol::CheckFolder({data, size});
  return 0;
}
