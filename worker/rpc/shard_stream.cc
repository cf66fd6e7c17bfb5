// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/shard_stream.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/check.h"
#include "protocol/wire/exchange_messages.h"
#include "worker/rpc/connection.h"

namespace sluice::worker {
namespace {

constexpr uint64_t kMessagePrefix = 5;  // gRPC's prefix of each message.
constexpr absl::Duration kProbeEvery = absl::Milliseconds(250);
// Called with raw bytes, because a generated stub would copy all frames into a message.
constexpr char kExchangeMethod[] = "/sluice.v1.ParameterShard/Exchange";

}  // namespace

// One stream. It lives until its OnDone. Writes start outside gRPC's own events, so a hold delays
// OnDone until the stream is broken and no write is being prepared.
class ShardStream::Call final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Call(ShardStream* owner, Stub* stub, const protocol::Sender& sender)
      : owner_(owner), sender_(sender) {
    stub->PrepareBidiStreamingCall(&context_, kExchangeMethod, {}, this);
    AddHold();
    StartRead(&incoming_);
  }

  void Start(std::shared_ptr<Call> self) {
    self_ = std::move(self);
    StartCall();
  }

  // A null `exchange` queues a probe.
  void Enqueue(std::shared_ptr<const protocol::ExchangeRequest> exchange, int64_t ready) {
    MutexLock lock(&mutex_);
    if (!broken_) queue_.push_back({std::move(exchange), static_cast<uint64_t>(ready)});
  }

  void WriteNext() {
    Queued next;
    {
      MutexLock lock(&mutex_);
      if (!begun_ || broken_ || writing_ || queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
      writing_ = true;
    }
    TraceFile* const trace = owner_->trace_;
    const absl::Time begin = trace == nullptr ? absl::Time() : trace->Now();
    const protocol::StageSpan sending(owner_->stages_, protocol::Stage::kSend);
    if (next.exchange == nullptr) {
      request_ = protocol::ProbeBytes(next.ready);
      StartWrite(&request_);
      return;
    }
    const std::optional<protocol::LinkReport> report = owner_->TakeReport();
    request_ =
        protocol::ExchangeRequestToBytes(next.exchange, first_ ? &sender_ : nullptr, next.ready,
                                         report.has_value() ? &*report : nullptr);
    first_ = false;
    const TraceTags tags{.step = next.exchange->step, .bundle = next.exchange->bundle};
    if (tags.step > 0) owner_->bytes_up_ += request_.Length() + kMessagePrefix;
    StartWrite(&request_);
    if (trace != nullptr) trace->Span("send", begin, trace->Now(), tags);
  }

  void Cancel() { context_.TryCancel(); }

  bool begun() const {
    MutexLock lock(&mutex_);
    return begun_;
  }

  // If the shard sends no metadata, OnReadDone notices the broken stream.
  void OnReadInitialMetadataDone(bool ok) override {
    if (!ok) return;
    {
      MutexLock lock(&mutex_);
      begun_ = true;
    }
    WriteNext();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Break();
    if (!std::exchange(up_, true)) owner_->events_->OnStreamUp(owner_->shard_);
    if (!ReadReply()) return Break();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(&mutex_);
      writing_ = false;
    }
    if (!ok) return Break();
    WriteNext();
    ReleaseIfOver();
  }

  void OnDone(const grpc::Status& ended) override {
    const grpc::Status status = malformed_ ? NotAReply() : ended;
    std::shared_ptr<Call> self = std::move(self_);
    ShardStream* const owner = owner_;
    {
      MutexLock lock(&owner->mutex_);
      if (owner->call_ == self) owner->call_ = nullptr;
    }
    owner->events_->OnStreamDown(owner->shard_, status);
    // Release this call before the owner may be destroyed: the context holds the channel, which
    // must not be destroyed on one of its own threads.
    self.reset();
    MutexLock lock(&owner->mutex_);
    --owner->calls_;
    owner->ended_.SignalAll();
  }

 private:
  struct Queued {
    std::shared_ptr<const protocol::ExchangeRequest> exchange{};  // Null for a probe.
    uint64_t ready = 0;
  };

  static grpc::Status NotAReply() {
    return {grpc::StatusCode::DATA_LOSS, "it sent bytes that are not an ExchangeReply"};
  }

  // Returns false, and ends the call, if the bytes are not a reply.
  bool ReadReply() {
    TraceFile* const trace = owner_->trace_;
    const absl::Time begin = trace == nullptr ? absl::Time() : trace->Now();
    const protocol::StageSpan receiving(owner_->stages_, protocol::Stage::kReceive);
    const int64_t came = owner_->NowNs();
    const size_t bytes = incoming_.Length();
    if (!grpc::GenericDeserialize<grpc::ProtoBufferReader, v1::ExchangeReply>(&incoming_, &reply_)
             .ok()) {
      malformed_ = true;
      context_.TryCancel();
      return false;
    }
    owner_->NoteReply(bytes, came, reply_);
    if (reply_.has_probe_held_ns()) return true;
    if (reply_.step() > 0) owner_->bytes_down_ += bytes + kMessagePrefix;
    const TraceTags tags{.step = reply_.step(), .bundle = reply_.bundle()};
    owner_->events_->OnReply(owner_->shard_, &reply_);
    if (trace != nullptr) trace->Span("receive", begin, trace->Now(), tags);
    return true;
  }

  void Break() {
    {
      MutexLock lock(&mutex_);
      broken_ = true;
      queue_.clear();
    }
    ReleaseIfOver();
  }

  void ReleaseIfOver() {
    {
      MutexLock lock(&mutex_);
      if (!broken_ || writing_ || released_) return;
      released_ = true;
    }
    RemoveHold();
  }

  ShardStream* const owner_;
  const protocol::Sender sender_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;   // Belongs to the thread that set writing_.
  bool first_ = true;          // Belongs to the thread that set writing_.
  grpc::ByteBuffer incoming_;  // Buffer of the read in progress.
  bool up_ = false;  // The shard has answered on this stream. Belongs to the read in progress.
  v1::ExchangeReply reply_;
  std::atomic<bool> malformed_ = false;  // The shard sent malformed bytes, which end the call.
  std::shared_ptr<Call> self_;
  mutable Mutex mutex_;
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);
  // The shard has begun the call. Until then, it closes a connection that sends a lot of data.
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
};

ShardStream::ShardStream(uint32_t shard, std::string address, const net::Transport& transport,
                         const protocol::Sender& sender, Events* events, const Clock* clock,
                         protocol::StageTimes* stages, TraceFile* trace)
    : shard_(shard),
      transport_(transport),
      events_(events),
      clock_(clock),
      stages_(stages),
      trace_(trace),
      address_(std::move(address)),
      channel_(transport.Dial(address_)),
      stub_(std::make_unique<Stub>(channel_)),
      sender_(sender) {}

ShardStream::~ShardStream() {
  std::shared_ptr<Call> open;
  {
    MutexLock lock(&mutex_);
    closing_ = true;
    open = call_;
  }
  if (open != nullptr) open->Cancel();
  MutexLock lock(&mutex_);
  while (calls_ > 0) ended_.Wait(&mutex_);
}

void ShardStream::Open(uint64_t server_incarnation) {
  std::shared_ptr<Call> opened;
  {
    MutexLock lock(&mutex_);
    if (closing_) return;
    Check(call_ == nullptr, "one stream at a time");
    if (std::exchange(moved_, false)) {
      // Wait here for the old calls: the last one's context holds the old channel, which must not
      // be destroyed on one of its own threads.
      while (calls_ > 0) ended_.Wait(&mutex_);
      channel_ = transport_.Dial(address_);
      stub_ = std::make_unique<Stub>(channel_);
    }
    sender_.server_incarnation = server_incarnation;
    probe_is_out_ = false;
    opened = std::make_shared<Call>(this, stub_.get(), sender_);
    call_ = opened;
    ++calls_;
  }
  opened->Start(opened);
}

void ShardStream::GoTo(std::string address) {
  MutexLock lock(&mutex_);
  address_ = std::move(address);
  moved_ = true;
}

void ShardStream::Enqueue(std::shared_ptr<const protocol::ExchangeRequest> exchange) {
  if (const std::shared_ptr<Call> open = call()) open->Enqueue(std::move(exchange), NowNs());
}

void ShardStream::Flush() {
  if (const std::shared_ptr<Call> open = call()) open->WriteNext();
}

void ShardStream::EndStep(const protocol::LinkReport& times) {
  std::shared_ptr<Call> open;
  const int64_t now = NowNs();
  {
    MutexLock lock(&mutex_);
    report_ = times;
    const bool due = probed_ == 0 || now - probed_ >= absl::ToInt64Nanoseconds(kProbeEvery);
    if (call_ == nullptr || probe_is_out_ || !due) return;
    open = call_;
    probed_ = now;
    probe_is_out_ = true;
  }
  open->Enqueue(nullptr, now);
  open->WriteNext();
}

void ShardStream::Tested(double accuracy) {
  MutexLock lock(&mutex_);
  tested_ = accuracy;
}

std::optional<protocol::LinkReport> ShardStream::TakeReport() {
  MutexLock lock(&mutex_);
  if (!report_.has_value()) return std::nullopt;
  std::optional<protocol::LinkReport> report = std::exchange(report_, std::nullopt);
  report->down = meter_.Take();
  report->tested = std::exchange(tested_, std::nullopt);
  if (const std::optional<absl::Duration> round_trip = LeastRoundTrip()) {
    report->round_trip_s = absl::ToDoubleSeconds(*round_trip);
  }
  return report;
}

void ShardStream::NoteReply(uint64_t bytes, int64_t came, const v1::ExchangeReply& reply) {
  MutexLock lock(&mutex_);
  meter_.Came(bytes, reply.ready_ns(), came, reply.has_probe_held_ns());
  if (!reply.has_probe_held_ns() || !probe_is_out_) return;
  probe_is_out_ = false;
  const int64_t away = came - probed_;
  const uint64_t held = reply.probe_held_ns();
  if (away <= 0 || held >= static_cast<uint64_t>(away)) return;  // Impossible measurement.
  round_trips_.push_back(away - static_cast<int64_t>(held));
  if (round_trips_.size() > protocol::LinkMeter::kProbes) round_trips_.pop_front();
}

std::optional<absl::Duration> ShardStream::RoundTrip() const {
  MutexLock lock(&mutex_);
  return LeastRoundTrip();
}

std::optional<absl::Duration> ShardStream::LeastRoundTrip() const {
  if (round_trips_.empty()) return std::nullopt;
  return absl::Nanoseconds(*std::min_element(round_trips_.begin(), round_trips_.end()));
}

void ShardStream::Cancel() {
  if (const std::shared_ptr<Call> open = call()) open->Cancel();
}

bool ShardStream::Connected() const {
  MutexLock lock(&mutex_);
  return channel_->GetState(false) == GRPC_CHANNEL_READY;
}

bool ShardStream::Begun() const {
  const std::shared_ptr<Call> open = call();
  return open != nullptr && open->begun();
}

std::shared_ptr<ShardStream::Call> ShardStream::call() const {
  MutexLock lock(&mutex_);
  return call_;
}

}  // namespace sluice::worker
