// SPDX-License-Identifier: Apache-2.0
// HostFixture: a ShardHost with a folder for its checkpoints and a record of its reports, for
// tests.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "net/grpc/transport.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "server/rpc/parameter_service.h"
#include "server/rpc/shard_host.h"
#include "tests/rpc/fake_worker.h"

namespace sluice {

inline constexpr uint64_t kHostJob = 77;

// A worker's stream to a host, over in-process gRPC.
class HostStream {
 public:
  explicit HostStream(server::ShardHost* host)
      : service_(host, {.answers_max = 64, .message_bytes_max = 1 << 20}, net::Transport::Plain()),
        server_(grpc::ServerBuilder().RegisterService(&service_).BuildAndStart()) {
    Check(server_ != nullptr, "a server without a port starts");
    open_.context = std::make_unique<grpc::ClientContext>();
    open_.context->set_deadline(TestDeadline());
    open_.stub = v1::ParameterShard::NewStub(server_->InProcessChannel({}));
    open_.stream = open_.stub->Exchange(open_.context.get());
  }
  ~HostStream() {
    if (!ended_) {
      open_.stream->WritesDone();
      Check(open_.stream->Finish().ok(), "the stream ends well");
    }
    server_->Shutdown();
  }

  // Returns the first reply that is not PENDING.
  v1::ExchangeReply Ask(const protocol::ExchangeRequest& exchange) {
    v1::ExchangeRequest request;
    request.mutable_sender()->set_job_uid(exchange.sender.job_uid);
    request.mutable_sender()->set_term(exchange.sender.term);
    request.mutable_sender()->set_incarnation(exchange.sender.incarnation);
    request.mutable_sender()->set_generation(exchange.sender.generation);
    request.set_step(exchange.step);
    request.set_acked_step(exchange.acked_step);
    for (const std::string& frame : exchange.frames) request.add_contributions()->set_frame(frame);
    open_.stream->Write(request);
    return AwaitReply(&open_);
  }
  // Waits until the host ends the stream, and returns its reason.
  grpc::Status AwaitEnd() {
    ended_ = true;
    v1::ExchangeReply reply;
    while (open_.stream->Read(&reply)) {
    }
    return open_.stream->Finish();
  }

 private:
  bool ended_ = false;
  server::ParameterService service_;
  const std::unique_ptr<grpc::Server> server_;
  FakeWorker::OpenStream open_;
};

// A job with one shard, one rank and eight elements. The shard's state is the residual: the part of
// each step that the downlink has not sent.
class HostFixture : public ::testing::Test {
 protected:
  HostFixture() {
    std::string folder = ::testing::TempDir() + "/host_XXXXXX";
    Check(::mkdtemp(folder.data()) != nullptr, "there is a folder for tests");
    folder_ = folder;
    job_.name = "test";
    job_.workers = 1;
    job_.shards = 1;
    job_.exchange.compression.min_elements = 0;
    job_.exchange.compression.downlink = *compress::ParseCodecSpec("topk:25%/ef");
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
    host->ReportTo([this](const server::ShardHost::ShardEvent& news) {
      MutexLock lock(&mutex_);
      if (const auto* part = std::get_if<protocol::CheckpointPart>(&news)) parts_.push_back(*part);
      if (const auto* named = std::get_if<server::CheckpointNamed>(&news))
        named_.push_back(named->step);
      if (std::holds_alternative<server::NotReproducible>(news)) ++not_reproducible_;
      told_.SignalAll();
    });
    return host;
  }

  static protocol::StartShard StartOf(uint32_t term, uint64_t restore_step) {
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
  // Returns the rank's request for a step. Its gradients depend only on the step.
  static protocol::ExchangeRequest WorkOf(uint32_t term, uint64_t step) {
    protocol::ExchangeRequest exchange;
    exchange.sender = SenderOf(term);
    exchange.step = step;
    exchange.acked_step = step - 1;
    std::vector<float> values;
    for (int i = 0; i < 8; ++i) values.push_back(static_cast<float>((step * 7 + i * 5) % 11));
    exchange.frames = {NoneFrame(values)};
    return exchange;
  }
  // Runs a step and returns its result.
  static std::string RunStep(server::ShardHost* host, uint32_t term, uint64_t step) {
    return ResultOf(host, WorkOf(term, step));
  }
  // Sends the work on a stream like a worker's and returns the host's result.
  static std::string ResultOf(server::ShardHost* host, const protocol::ExchangeRequest& work) {
    const v1::ExchangeReply reply = HostStream(host).Ask(work);
    Check(reply.outcome() == v1::OUTCOME_RESULT && reply.results_size() == 1,
          absl::StrCat("not a result of one frame: ", reply.ShortDebugString()));
    return reply.results(0);
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
  uint64_t server_incarnation_ = 5;      // Incarnation of the next host.
  std::function<void()> before_copy_{};  // For the next host.
  std::string folder_;
  job::JobSpec job_;
  Mutex mutex_;
  CondVar told_;
  std::vector<protocol::CheckpointPart> parts_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> named_ ABSL_GUARDED_BY(mutex_);
  size_t not_reproducible_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
