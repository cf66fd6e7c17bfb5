// A ShardHost with a folder for its checkpoints, and what it has told, for tests.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "gtest/gtest.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "server/rpc/shard_host.h"
#include "tests/rpc/fake_worker.h"

namespace sluice {

inline constexpr uint64_t kHostJob = 77;

// One shard and one rank train eight elements; what the downlink leaves out of each step is its
// state.
class HostFixture : public ::testing::Test {
 protected:
  HostFixture() {
    std::string folder = ::testing::TempDir() + "/host_XXXXXX";
    Check(::mkdtemp(folder.data()) != nullptr, "there is a folder for tests");
    folder_ = folder;
    job_.name = "test";
    job_.workers = 1;
    job_.shards = 1;
    job_.compression.min_elements = 0;
    job_.compression.downlink = *compress::ParseCodecSpec("topk:25%/ef");
    job_.checkpoint.dir = folder_ + "/checkpoints";
  }
  ~HostFixture() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<server::ShardHost> MakeHost() {
    auto host = std::make_unique<server::ShardHost>(
        server::ShardHost::Options{
            .shard = 0,
            .job = job_,
            .on_alarm = [](const std::string& text) { ADD_FAILURE() << text; },
            .before_copy = before_copy_},
        &clock_, Logger("test"));
    host->SetIncarnation(server_incarnation_);
    host->ReportTo([this](const server::ShardHost::News& news) {
      MutexLock lock(&mutex_);
      if (const auto* part = std::get_if<protocol::CheckpointPart>(&news)) parts_.push_back(*part);
      if (const auto* named = std::get_if<server::CheckpointNamed>(&news))
        named_.push_back(named->step);
      if (std::holds_alternative<server::NotReproducible>(news)) ++not_reproducible_;
      told_.SignalAll();
    });
    return host;
  }

  static server::StartShard StartOf(uint32_t term, uint64_t restore_step) {
    return {
        .job_uid = kHostJob,
        .term = term,
        .first_step = restore_step + 1,
        .table = {{.name = "w", .shape = {8}, .strides = {}, .dtype = protocol::DType::kFloat32}},
        .layout = {},
        .generation = 1,
        .incarnations = {100},
        .window_bytes = 1 << 20,
        .coordinator_incarnation = 3,
        .parameters_agree = true,
        .restore_step = restore_step};
  }
  static protocol::Sender SenderOf(uint32_t term) {
    return {.job_uid = kHostJob, .term = term, .incarnation = 100, .generation = 1};
  }
  // What the rank sends in a step: gradients that only its number decides.
  static protocol::Exchange WorkOf(uint32_t term, uint64_t step) {
    protocol::Exchange exchange;
    exchange.sender = SenderOf(term);
    exchange.step = step;
    exchange.acked_step = step - 1;
    std::vector<float> values;
    for (int i = 0; i < 8; ++i) values.push_back(static_cast<float>((step * 7 + i * 5) % 11));
    exchange.frames = {NoneFrame(values)};
    return exchange;
  }
  // What a step gives.
  static std::string RunStep(server::ShardHost* host, uint32_t term, uint64_t step) {
    host->Handle(/*stream=*/1, WorkOf(term, step));
    const auto results = host->Pull(SenderOf(term), step - 1, {});
    Check(results.ok() && results->size() == 1, "a step gives one result");
    return results->at(0)->results.at(0);
  }

  protocol::CheckpointPart AwaitPart() {
    MutexLock lock(&mutex_);
    while (parts_.empty()) told_.Wait(&mutex_);
    protocol::CheckpointPart part = parts_.front();
    parts_.erase(parts_.begin());
    return part;
  }
  void Complete(const protocol::CheckpointPart& part) {
    const absl::Status written =
        protocol::WriteManifest(job_.checkpoint.dir, {.job_name = "test",
                                                      .job_uid = kHostJob,
                                                      .term = part.term,
                                                      .step = part.step,
                                                      .world_size = 1,
                                                      .shards = 1,
                                                      .layout = {},
                                                      .software_version = "1",
                                                      .parts = {part}});
    Check(written.ok(), written.message());
  }
  std::string PathOf(const protocol::CheckpointPart& part) const {
    return protocol::StepFolder(job_.checkpoint.dir, part.step) + "/" + part.name;
  }
  void Damage(const protocol::CheckpointPart& part) const {
    std::fstream file(PathOf(part), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(part.bytes / 2));
    const int old = file.peek();
    file.put(static_cast<char>(old ^ 1));
    Check(file.good(), "a test can damage a file");
  }
  std::vector<uint64_t> named() {
    MutexLock lock(&mutex_);
    return named_;
  }

  size_t untold_parts() {
    MutexLock lock(&mutex_);
    return parts_.size();
  }

  size_t not_reproducible() {
    MutexLock lock(&mutex_);
    return not_reproducible_;
  }

  SteadyClock clock_;
  uint64_t server_incarnation_ = 5;      // Number that the next host gets.
  std::function<void()> before_copy_{};  // Likewise.
  std::string folder_;
  job::JobSpec job_;
  Mutex mutex_;
  CondVar told_;
  std::vector<protocol::CheckpointPart> parts_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> named_ ABSL_GUARDED_BY(mutex_);
  size_t not_reproducible_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
