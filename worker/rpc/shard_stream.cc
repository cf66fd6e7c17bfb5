#include "worker/rpc/shard_stream.h"

#include <deque>
#include <utility>

#include "base/check.h"
#include "worker/rpc/connection.h"
#include "worker/rpc/exchange_messages.h"

namespace sluice {
namespace {

constexpr uint64_t kMessagePrefix = 5;  // gRPC's, before each message.
// As bytes: a generated stub would copy all frames into a message.
constexpr char kExchangeMethod[] = "/sluice.v1.ParameterShard/Exchange";

}  // namespace

// One stream. Lives until its OnDone. Writes start outside gRPC's own events, so a hold keeps
// OnDone away until the stream is broken and no write is being prepared.
class ShardStream::Call final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Call(ShardStream* owner, const Sender& sender) : owner_(owner), sender_(sender) {
    owner_->stub_.PrepareBidiStreamingCall(&context_, kExchangeMethod, {}, this);
    AddHold();
    StartRead(&incoming_);
  }

  void Start(std::shared_ptr<Call> self) {
    self_ = std::move(self);
    StartCall();
  }

  void Enqueue(std::shared_ptr<const Exchange> exchange) {
    MutexLock lock(&mutex_);
    if (!broken_) queue_.push_back(std::move(exchange));
  }

  void WriteNext() {
    std::shared_ptr<const Exchange> exchange;
    {
      MutexLock lock(&mutex_);
      if (broken_ || writing_ || queue_.empty()) return;
      exchange = std::move(queue_.front());
      queue_.pop_front();
      writing_ = true;
    }
    TraceFile* const trace = owner_->trace_;
    const absl::Time begin = trace == nullptr ? absl::Time() : trace->Now();
    const StageSpan sending(owner_->stages_, Stage::kSend);
    request_ = RequestBytes(exchange, first_ ? &sender_ : nullptr);
    first_ = false;
    if (exchange->step > 0) owner_->bytes_up_ += request_.Length() + kMessagePrefix;
    StartWrite(&request_);
    if (trace == nullptr) return;
    trace->Span("send", begin, trace->Now(), {.step = exchange->step, .bundle = exchange->bundle});
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadInitialMetadataDone(bool ok) override {
    if (ok) owner_->events_->OnStreamUp(owner_->shard_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Break();
    if (!TakeReply()) return Break();
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
    // Before the owner may go: the context holds the channel, which must not end on a thread of its
    // own.
    self.reset();
    MutexLock lock(&owner->mutex_);
    --owner->calls_;
    owner->ended_.SignalAll();
  }

 private:
  static grpc::Status NotAReply() {
    return {grpc::StatusCode::DATA_LOSS, "it sent bytes that are not an ExchangeReply"};
  }

  // False: there is none in the bytes, and the call ends.
  bool TakeReply() {
    TraceFile* const trace = owner_->trace_;
    const absl::Time begin = trace == nullptr ? absl::Time() : trace->Now();
    const StageSpan receiving(owner_->stages_, Stage::kReceive);
    const size_t bytes = incoming_.Length();
    if (!grpc::GenericDeserialize<grpc::ProtoBufferReader, v1::ExchangeReply>(&incoming_, &reply_)
             .ok()) {
      malformed_ = true;
      context_.TryCancel();
      return false;
    }
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
  const Sender sender_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;   // Belongs to whoever set writing_.
  bool first_ = true;          // Likewise.
  grpc::ByteBuffer incoming_;  // Of the one read under way.
  v1::ExchangeReply reply_;
  std::atomic<bool> malformed_ = false;  // What came; the end of the call.
  std::shared_ptr<Call> self_;
  Mutex mutex_;
  std::deque<std::shared_ptr<const Exchange>> queue_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
};

ShardStream::ShardStream(uint32_t shard, std::string address, const Transport& transport,
                         const Sender& sender, Events* events, StageTimes* stages, TraceFile* trace)
    : shard_(shard),
      address_(std::move(address)),
      events_(events),
      stages_(stages),
      trace_(trace),
      channel_(transport.Dial(address_)),
      stub_(channel_),
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
    sender_.server_incarnation = server_incarnation;
    opened = std::make_shared<Call>(this, sender_);
    call_ = opened;
    ++calls_;
  }
  opened->Start(opened);
}

void ShardStream::Enqueue(std::shared_ptr<const Exchange> exchange) {
  if (const std::shared_ptr<Call> open = call()) open->Enqueue(std::move(exchange));
}

void ShardStream::Flush() {
  if (const std::shared_ptr<Call> open = call()) open->WriteNext();
}

void ShardStream::Cancel() {
  if (const std::shared_ptr<Call> open = call()) open->Cancel();
}

bool ShardStream::Connected() const { return channel_->GetState(false) == GRPC_CHANNEL_READY; }

std::shared_ptr<ShardStream::Call> ShardStream::call() const {
  MutexLock lock(&mutex_);
  return call_;
}

}  // namespace sluice
