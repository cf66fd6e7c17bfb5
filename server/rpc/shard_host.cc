#include "server/rpc/shard_host.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "server/rpc/convert.h"

namespace sluice {
namespace {

constexpr uint32_t kNotStartedRetryMs = 100;

std::shared_ptr<const grpc::ByteBuffer> Serialize(const ExchangeAnswer& answer,
                                                  uint64_t server_incarnation) {
  auto buffer = std::make_shared<grpc::ByteBuffer>();
  bool own_buffer = false;
  const grpc::Status status = grpc::GenericSerialize<grpc::ProtoBufferWriter, v1::ExchangeReply>(
      ReplyToProto(answer, server_incarnation), buffer.get(), &own_buffer);
  Check(status.ok(), "an answer can be serialized");
  return buffer;
}

}  // namespace

ShardHost::ShardHost(Options options, const Clock* clock, Logger logger)
    : options_(std::move(options)), clock_(clock), logger_(std::move(logger)) {}

absl::Status ShardHost::Start(const StartShard& start) {
  if (start.incarnations.size() != options_.job.workers) {
    return absl::InvalidArgumentError(absl::StrCat("the coordinator names ",
                                                   start.incarnations.size(),
                                                   " ranks, the job file ", options_.job.workers));
  }
  absl::StatusOr<Layout> layout = BuildLayout(start.table, options_.job.shards, start.layout,
                                              WholeRows(options_.job.compression, start.table));
  if (!layout.ok()) return layout.status();
  ShardOptions options{.shard = options_.shard,
                       .table = start.table,
                       .layout = *std::move(layout),
                       .compression = options_.job.compression,
                       .job_uid = start.job_uid,
                       .term = start.term,
                       .generation = start.generation,
                       .server_incarnation = options_.server_incarnation,
                       .incarnations = start.incarnations,
                       .first_step = start.first_step,
                       .parameters_agree = start.parameters_agree,
                       .window_bytes = start.window_bytes,
                       .max_memory = options_.job.server.max_memory,
                       .log = {},
                       .restore = nullptr};
  MutexLock lock(&mutex_);
  if (shard_ != nullptr) {
    if (shard_->options().job_uid == start.job_uid) return absl::OkStatus();
    return absl::FailedPreconditionError("this server already works for another run");
  }
  absl::StatusOr<std::unique_ptr<Shard>> shard = Shard::Create(std::move(options));
  if (!shard.ok()) return shard.status();
  shard_ = *std::move(shard);
  logger_.Info("job ", options_.job.name, ": ", shard_->Stats().elements, " elements in ",
               shard_->bundles(), " bundles, ", options_.job.workers, " workers");
  return absl::OkStatus();
}

absl::Status ShardHost::SetMembership(uint32_t generation, std::vector<uint64_t> incarnations) {
  MutexLock lock(&mutex_);
  if (shard_ == nullptr) return absl::FailedPreconditionError("no job was started here");
  return shard_->SetMembership(generation, std::move(incarnations));
}

void ShardHost::End(absl::string_view reason) {
  MutexLock lock(&mutex_);
  ended_ = std::string(reason);
  if (shard_ != nullptr) Deliver(shard_->End(reason));
}

void ShardHost::Tick() {
  MutexLock lock(&mutex_);
  if (shard_ != nullptr) Deliver(shard_->Tick(clock_->Now()));
}

StreamId ShardHost::Open(ExchangeOutput* output) {
  MutexLock lock(&mutex_);
  outputs_.emplace(++last_stream_, output);
  return last_stream_;
}

void ShardHost::Closed(StreamId stream) {
  MutexLock lock(&mutex_);
  outputs_.erase(stream);
  if (shard_ != nullptr) shard_->StreamClosed(stream);
}

void ShardHost::Handle(StreamId stream, Exchange exchange) {
  MutexLock lock(&mutex_);
  if (shard_ != nullptr) {
    Deliver(shard_->Handle(stream, std::move(exchange), clock_->Now()));
    return;
  }
  auto answer = std::make_shared<ExchangeAnswer>();
  answer->outcome = ended_.empty() ? Outcome::kBusy : Outcome::kFenced;
  answer->step = exchange.step;
  answer->bundle = exchange.bundle;
  answer->retry_after_ms = kNotStartedRetryMs;
  answer->message = ended_;
  Send(stream, answer);
}

void ShardHost::Refuse(StreamId stream, uint64_t step, uint32_t bundle, std::string why) {
  auto answer = std::make_shared<ExchangeAnswer>();
  answer->outcome = Outcome::kInvalid;
  answer->step = step;
  answer->bundle = bundle;
  answer->message = std::move(why);
  MutexLock lock(&mutex_);
  Send(stream, answer);
}

absl::StatusOr<std::vector<std::shared_ptr<const ExchangeAnswer>>> ShardHost::Pull(
    const Sender& sender, uint64_t after_step, const std::vector<uint32_t>& bundles) {
  MutexLock lock(&mutex_);
  if (shard_ == nullptr) return absl::UnavailableError("no job was started here yet");
  const std::string fenced = shard_->FenceReason(sender);
  if (!fenced.empty()) return absl::FailedPreconditionError(fenced);
  return shard_->ResultsAfter(after_step, bundles);
}

void ShardHost::Deliver(const std::vector<ShardEffect>& effects) {
  for (const ShardEffect& effect : effects) {
    if (const auto* reply = std::get_if<Reply>(&effect)) {
      Send(reply->stream, reply->answer);
    } else if (const auto* notice = std::get_if<Notice>(&effect)) {
      logger_.Warning(notice->text);
    } else if (const auto* alarm = std::get_if<Alarm>(&effect)) {
      logger_.Error(alarm->text);
      options_.on_alarm(alarm->text);
    }
  }
  last_answer_.reset();
  last_bytes_.reset();
}

void ShardHost::Send(StreamId stream, const std::shared_ptr<const ExchangeAnswer>& answer) {
  const auto output = outputs_.find(stream);
  if (output == outputs_.end()) return;
  if (answer != last_answer_) {
    last_bytes_ = Serialize(*answer, options_.server_incarnation);
    last_answer_ = answer;
  }
  output->second->Send(last_bytes_);
}

bool ShardHost::started() const {
  MutexLock lock(&mutex_);
  return shard_ != nullptr;
}

ShardStats ShardHost::Stats() const {
  MutexLock lock(&mutex_);
  return shard_ == nullptr ? ShardStats() : shard_->Stats();
}

double ShardHost::ResidualEnergy() const {
  MutexLock lock(&mutex_);
  return shard_ == nullptr ? 0 : shard_->ResidualEnergy();
}

ShardHealthReport ShardHost::Health() const {
  const ShardStats stats = Stats();
  return {.highest_closed_step = stats.highest_closed_step,
          .highest_open_step = stats.open_step,
          .elements = stats.elements,
          .in_flight_bytes = stats.held_bytes};
}

}  // namespace sluice
