// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/rpc/fake_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "protocol/exchange.h"

namespace sluice::worker {
namespace {

constexpr uint64_t kIncarnation = 5;
constexpr int kPrefix = 5;

v1::ExchangeReply ResultOf(const v1::ExchangeRequest& request,
                           const std::vector<std::string>& values, uint32_t world_size) {
  std::vector<std::string> own;
  for (const v1::Contribution& c : request.contributions()) own.push_back(c.frame());
  v1::ExchangeReply reply;
  reply.set_outcome(v1::OUTCOME_RESULT);
  reply.set_step(request.step());
  reply.set_bundle(request.bundle());
  reply.set_server_incarnation(kIncarnation);
  v1::ClosingRecord* record = reply.mutable_record();
  record->set_step(request.step());
  record->set_bundle(request.bundle());
  std::vector<std::string> results = own;
  if (world_size == 2) {  // The worker is rank 1 and skips; rank 0 sent its values.
    results = {values.at(request.bundle())};
    v1::Included* first = record->add_included();
    first->set_checksum(protocol::BundleChecksum(results));
    first->set_origin_step(request.step());
  }
  v1::Included* included = record->add_included();
  included->set_rank(world_size - 1);
  included->set_origin_step(request.step());
  included->set_checksum(protocol::BundleChecksum(own));
  included->set_skipped(request.skip());
  record->set_n(results.empty() ? 0 : 1);
  record->set_result_checksum(protocol::BundleChecksum(results));
  for (const std::string& frame : results) reply.add_results(frame);
  return reply;
}

}  // namespace

class FakeServer::CoordinatorService final : public v1::Coordinator::Service {
 public:
  explicit CoordinatorService(FakeServer* owner) : owner_(owner) {}

  grpc::Status Join(grpc::ServerContext*, const v1::JoinRequest* request,
                    v1::JoinReply* reply) override {
    MutexLock lock(&owner_->mutex_);
    owner_->joins_.push_back(*request);
    const Script& script = owner_->script_;
    if (static_cast<int>(owner_->joins_.size()) <= script.joins_unanswered) {
      script.clock->Advance(script.join_deadline);
      return {grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"};
    }
    if (static_cast<int>(owner_->joins_.size()) <= script.joins_unavailable) {
      return {grpc::StatusCode::UNAVAILABLE, "not yet"};
    }
    if (!script.join.ok()) return script.join;
    reply->set_job_uid(77);
    reply->set_rank(request->rank());
    reply->set_incarnation(request->nonce());
    reply->set_generation(1);
    reply->set_world_size(script.world_size);
    reply->set_term(script.term);
    reply->set_restore_step(script.restore_step);
    reply->set_first_step(script.restore_step + 1);
    reply->mutable_layout()->set_chunk_elements(64);
    reply->mutable_layout()->set_bundle_elements(64);
    for (uint32_t shard = 0; shard < owner_->shards_.size(); ++shard) {
      v1::ShardAddress* address = reply->add_shards();
      address->set_shard(shard);
      address->set_address(owner_->shards_[shard]);
      address->set_server_incarnation(kIncarnation);
    }
    reply->set_window_bytes(1 << 20);
    reply->set_parameters_agree(script.parameters_agree);
    reply->set_lease_ms(script.lease_ms);
    reply->set_heartbeat_ms(script.heartbeat_ms);
    reply->set_server_incarnation(kIncarnation);
    return grpc::Status::OK;
  }

  grpc::Status Heartbeat(grpc::ServerContext*, const v1::HeartbeatRequest* request,
                         v1::HeartbeatReply* reply) override {
    MutexLock lock(&owner_->mutex_);
    owner_->heartbeats_.push_back(*request);
    owner_->heard_.SignalAll();
    const Script& script = owner_->script_;
    if (static_cast<int>(owner_->heartbeats_.size()) <= script.heartbeats_refused) {
      return {grpc::StatusCode::UNAUTHENTICATED, "a wrong token"};
    }
    if (owner_->told_shard_.has_value()) *reply->add_shards() = *owner_->told_shard_;
    reply->set_server_incarnation(kIncarnation);
    reply->set_phase(script.failure.empty() ? v1::JOB_PHASE_RUNNING : v1::JOB_PHASE_FAILED);
    reply->set_failure(script.failure);
    reply->set_term(script.term_now);
    return script.heartbeat;
  }

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusReply* reply) override {
    MutexLock lock(&owner_->mutex_);
    ++owner_->status_calls_;
    reply->add_warnings()->set_text("the job waits for shard 1 to join");
    return owner_->script_.status;
  }

  grpc::Status Leave(grpc::ServerContext*, const v1::LeaveRequest* request,
                     v1::LeaveReply* reply) override {
    MutexLock lock(&owner_->mutex_);
    owner_->leaves_.push_back(*request);
    owner_->heard_.SignalAll();
    const bool early = static_cast<int>(owner_->leaves_.size()) <= owner_->script_.leaves_early;
    reply->set_phase(early ? v1::JOB_PHASE_RUNNING : v1::JOB_PHASE_FINISHED);
    reply->set_term(owner_->script_.term_now);
    return grpc::Status::OK;
  }

  grpc::Status ReportCheckpoint(grpc::ServerContext*, const v1::ReportCheckpointRequest* request,
                                v1::ReportCheckpointReply*) override {
    MutexLock lock(&owner_->mutex_);
    owner_->parts_.push_back(request->part());
    owner_->heard_.SignalAll();
    if (static_cast<int>(owner_->parts_.size()) <= owner_->script_.reports_early) {
      return {grpc::StatusCode::UNAVAILABLE, "it is being examined"};
    }
    return owner_->script_.report;
  }

 private:
  FakeServer* const owner_;
};

class FakeServer::ShardService final : public v1::ParameterShard::Service {
 public:
  explicit ShardService(FakeServer* owner) : owner_(owner) {}

  grpc::Status Exchange(grpc::ServerContext*, Stream* stream) override {
    {
      MutexLock lock(&owner_->mutex_);
      Script& script = owner_->script_;
      if (script.streams_unbegun > 0) {
        --script.streams_unbegun;
        return {grpc::StatusCode::UNAVAILABLE, "ended on purpose"};
      }
      if (script.holds_streams) {
        owner_->held_.insert(stream);
        owner_->heard_.SignalAll();
      } else {
        stream->SendInitialMetadata();
      }
    }
    const grpc::Status status = Answer(stream);
    MutexLock lock(&owner_->mutex_);
    owner_->held_.erase(stream);
    return status;
  }

 private:
  grpc::Status Answer(Stream* stream) {
    int messages = 0;
    v1::ExchangeRequest request;
    while (stream->Read(&request)) {
      v1::ExchangeReply reply;
      if (request.probe()) {
        reply.set_probe_held_ns(0);
        stream->Write(reply);
        continue;
      }
      ++messages;
      {
        MutexLock lock(&owner_->mutex_);
        Script& script = owner_->script_;
        owner_->exchanges_.push_back(request);
        owner_->bytes_read_ += request.ByteSizeLong() + kPrefix;
        if (script.streams_refused > 0) {
          --script.streams_refused;
          return {grpc::StatusCode::UNAUTHENTICATED, "a wrong token"};
        }
        if (!script.stream.ok()) return script.stream;
        if (script.streams_broken > 0) {
          if (messages < 2) continue;
          --script.streams_broken;
          return {grpc::StatusCode::UNAVAILABLE, "broken on purpose"};
        }
        if (script.silent) continue;
        if (script.busy > 0) {
          --script.busy;
          reply.set_outcome(v1::OUTCOME_BUSY);
          reply.set_step(request.step());
          reply.set_bundle(request.bundle());
          reply.set_retry_after_ms(1);
        } else if (script.fence_term > 0) {
          reply.set_outcome(v1::OUTCOME_FENCED);
          reply.set_term(script.fence_term);
          reply.set_message("worker 1 was lost");
        } else {
          reply = ResultOf(request, script.values, script.world_size);
          reply.mutable_record()->set_term(script.term);
          const bool named =
              request.step() >= script.name_at_step && request.step() <= script.checkpoint_step;
          if (named) reply.set_checkpoint_step(script.checkpoint_step);
        }
        reply.set_server_incarnation(script.incarnation);
        // Invalid UTF-8, which an older protobuf or another language may send. The C++ parser
        // rejects it.
        if (script.garbage) reply.set_message("\xff");
        owner_->bytes_written_ += reply.ByteSizeLong() + kPrefix;
      }
      stream->Write(reply);
    }
    return grpc::Status::OK;
  }

  FakeServer* const owner_;
};

FakeServer::FakeServer(Script script)
    : script_(std::move(script)),
      coordinator_(std::make_unique<CoordinatorService>(this)),
      shard_(std::make_unique<ShardService>(this)) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(coordinator_.get());
  builder.RegisterService(shard_.get());
  server_ = builder.BuildAndStart();
  Check(server_ != nullptr && port != 0, "a loopback port is free");
  address_ = absl::StrCat("127.0.0.1:", port);
  SetShards({address_});
}

FakeServer::~FakeServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  // Handlers have ended by now. The thread sanitizer cannot see that, because gRPC's own locks are
  // not instrumented.
  MutexLock lock(&mutex_);
}

void FakeServer::SetShards(std::vector<std::string> addresses) {
  MutexLock lock(&mutex_);
  shards_ = std::move(addresses);
}

void FakeServer::AnnounceShard(const std::string& address, uint64_t incarnation) {
  MutexLock lock(&mutex_);
  told_shard_.emplace();
  told_shard_->set_address(address);
  told_shard_->set_server_incarnation(incarnation);
}

int FakeServer::status_calls() const {
  MutexLock lock(&mutex_);
  return status_calls_;
}

std::vector<v1::JoinRequest> FakeServer::joins() const {
  MutexLock lock(&mutex_);
  return joins_;
}
std::vector<v1::HeartbeatRequest> FakeServer::heartbeats() const {
  MutexLock lock(&mutex_);
  return heartbeats_;
}
std::vector<v1::LeaveRequest> FakeServer::leaves() const {
  MutexLock lock(&mutex_);
  return leaves_;
}
std::vector<v1::ExchangeRequest> FakeServer::exchanges() const {
  MutexLock lock(&mutex_);
  return exchanges_;
}
uint64_t FakeServer::bytes_read() const {
  MutexLock lock(&mutex_);
  return bytes_read_;
}
uint64_t FakeServer::bytes_written() const {
  MutexLock lock(&mutex_);
  return bytes_written_;
}

std::vector<v1::CheckpointPart> FakeServer::parts() const {
  MutexLock lock(&mutex_);
  return parts_;
}

void FakeServer::RaiseTerm(uint32_t term) {
  MutexLock lock(&mutex_);
  script_.term_now = term;
}

void FakeServer::BeginStreams() {
  MutexLock lock(&mutex_);
  script_.holds_streams = false;
  for (Stream* stream : held_) stream->SendInitialMetadata();
  held_.clear();
}

void FakeServer::AwaitHeldStream() {
  MutexLock lock(&mutex_);
  while (held_.empty()) heard_.Wait(&mutex_);
}

void FakeServer::AwaitParts(size_t count) {
  MutexLock lock(&mutex_);
  while (parts_.size() < count) heard_.Wait(&mutex_);
}

void FakeServer::AwaitLeaves(size_t count) {
  MutexLock lock(&mutex_);
  while (leaves_.size() < count) heard_.Wait(&mutex_);
}

void FakeServer::AwaitHeartbeat() {
  MutexLock lock(&mutex_);
  const size_t before = heartbeats_.size();
  while (heartbeats_.size() == before) heard_.Wait(&mutex_);
}

}  // namespace sluice::worker
