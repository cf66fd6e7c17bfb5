// The parts of JoinedSession that run on other threads than the caller's: the encoder thread and
// stream events.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/wire/exchange_messages.h"
#include "worker/rpc/connection.h"
#include "worker/rpc/joined_session.h"

namespace sluice::worker {

void JoinedSession::OnStreamUp(uint32_t shard) {
  MutexLock lock(&mutex_);
  // The stream may have reached the replaced process again; only an answer shows that it has not.
  if (!links_[shard].outdated) StreamIsUp(shard);
}

void JoinedSession::StreamIsUp(uint32_t shard) {
  ShardLink& link = links_[shard];
  link.outdated = false;
  link.silent_since = absl::InfiniteFuture();
  link.backoff = options_.backoff_min;
  if (!link.told || Over()) return;  // Over: the stream may be closing.
  link.told = false;
  options_.logger.Info("shard ", shard, " at ", link.stream->address(), " responds again");
}

void JoinedSession::OnReply(uint32_t shard, v1::ExchangeReply* reply) {
  const uint64_t incarnation = reply->server_incarnation();
  absl::StatusOr<protocol::ExchangeReply> answer = protocol::ExchangeReplyFromProto(reply);
  Pipeline::Effects effects;
  {
    MutexLock lock(&mutex_);
    ShardLink& link = links_[shard];
    if (incarnation != 0 && incarnation < link.newest()) {
      if (Over()) return;
      link.outdated = true;
      link.trouble = "the process there was replaced by a newer one";
      return LeaveFor(shard, link.stream->address());
    }
    StreamIsUp(shard);
    if (Over()) return;
    if (!answer.ok()) {
      (void)FailLocked(absl::Status(answer.status().code(),
                                    absl::StrCat("shard ", shard, " at ", link.stream->address(),
                                                 ": ", answer.status().message())));
      return;
    }
    if (incarnation > link.server_incarnation) {
      link.server_incarnation = incarnation;
      pipeline_.ShardReplaced(shard, &effects);
    }
    pipeline_.Answer(shard, *std::move(answer), &effects);
    CarryOut(effects);
    if (awaits_tensors_) step_changed_.SignalAll();
  }
  Flush(effects);
}

// Ignores a process unless it is newer than all processes of the shard that this worker knows.
void JoinedSession::Follow(const protocol::ShardPlace& place) {
  if (Over() || place.shard >= links_.size() || place.address.empty()) return;
  ShardLink& link = links_[place.shard];
  if (place.server_incarnation <= link.newest()) return;
  link.told_incarnation = place.server_incarnation;
  options_.logger.Info("shard ", place.shard, " is served by another process now, at ",
                       place.address, "; connecting there");
  if (store_ != nullptr) store_->GoTo(place.shard, place.address, place.server_incarnation);
  link.moves = true;
  LeaveFor(place.shard, place.address);
}

void JoinedSession::LeaveFor(uint32_t shard, const std::string& address) {
  links_[shard].stream->GoTo(address);
  links_[shard].stream->Cancel();  // OnStreamDown opens the next one.
}

void JoinedSession::OnStreamDown(uint32_t shard, const grpc::Status& status) {
  MutexLock lock(&mutex_);
  if (Over()) return;
  ShardLink& link = links_[shard];
  if (!MayPassOnceLetIn(status)) {
    if (leaving_) return;
    (void)FailLocked(ToStatus(
        status, absl::StrCat("shard ", shard, " at ", link.stream->address(), " ended the stream"),
        *options_.transport));
    return;
  }
  if (std::exchange(link.moves, false)) {
    link.reopen_at = clock_.Now();
    WakeStrand();
    return;
  }
  if (!link.outdated) link.trouble = Reason(status, *options_.transport);
  const absl::Time now = clock_.Now();
  link.silent_since = std::min(link.silent_since, now);
  if (now - link.silent_since >= patience_) {
    if (!leaving_) (void)FailLocked(Unreachable(shard));
    return;
  }
  // Shards may exit before this worker learns that the job has finished.
  if (!link.told && !leaving_) {
    link.told = true;
    options_.logger.Warning("shard ", shard, " at ", link.stream->address(), ": ", link.trouble,
                            "; retrying for ", absl::FormatDuration(patience_));
  }
  link.reopen_at = now + link.backoff;
  link.backoff = std::min(2 * link.backoff, options_.backoff_max);
  WakeStrand();
}

bool JoinedSession::Over() const {
  return !status_.ok() || stopping_ || (leaving_ && pipeline_.replay_from() == 0);
}

absl::Status JoinedSession::Unreachable(uint32_t shard) const {
  const ShardLink& link = links_[shard];
  return Lost(absl::UnavailableError(
      absl::StrCat("shard ", shard, " at ", link.stream->address(), " cannot be reached for ",
                   absl::FormatDuration(patience_), " (", link.trouble,
                   "): is sluice-server running there with --shard ", shard,
                   ", and may this machine connect to it?")));
}

void JoinedSession::RunEncoder() {
  if (options_.trace != nullptr) options_.trace->NameThread("encoder");
  while (true) {
    if (EncodeNext() || ServeTimers()) continue;
    MutexLock lock(&mutex_);
    while (!encoder_asked_ && !stopping_) {
      const absl::Time next = NextTimer();
      if (next == absl::InfiniteFuture()) {
        encoder_wake_.Wait(&mutex_);
        continue;
      }
      const absl::Duration left = next - clock_.Now();
      if (left <= absl::ZeroDuration()) break;
      encoder_wake_.WaitFor(&mutex_, left);
    }
    encoder_asked_ = false;
    if (stopping_) return;
  }
}

bool JoinedSession::EncodeNext() {
  std::optional<EncodeTask> task;
  {
    MutexLock lock(&mutex_);
    if (Over()) return false;
    task = pipeline_.NextEncoding();
    if (!task.has_value()) return false;
    encoding_ = true;
  }
  const absl::Time started = clock_.Now();
  EncodedBundle encoded = Encode(*task);
  const absl::Time ended = clock_.Now();
  if (options_.trace != nullptr) {
    options_.trace->Span("encode", started, ended, {.step = task->step, .bundle = task->bundle});
  }
  std::optional<CodingQuality> quality;
  if (task->last_of_step && options_.quality_interval > 0) quality = encoder_.quality();
  Pipeline::Effects effects;
  {
    MutexLock lock(&mutex_);
    if (quality.has_value() && quality->chunks > 0) quality_ = quality;
    encoding_ = false;
    step_changed_.SignalAll();
    if (task->step > 0) times_.Encoded(started, ended);
    pipeline_.Encoded(std::move(encoded), &effects);
    CarryOut(effects);
  }
  Flush(effects);
  return true;
}

EncodedBundle JoinedSession::Encode(const EncodeTask& task) {
  const protocol::StageSpan encoding(&stages_, protocol::Stage::kEncode);
  return encoder_.Encode(task);
}

bool JoinedSession::ServeTimers() {
  Pipeline::Effects effects;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_.Now();
    if (now < NextTimer()) return false;
    for (uint32_t shard = 0; shard < links_.size(); ++shard) ServeShard(shard, now, &effects);
    CarryOut(effects);
  }
  Flush(effects);
  return true;
}

void JoinedSession::ServeShard(uint32_t shard, absl::Time now, Pipeline::Effects* effects) {
  ShardLink& link = links_[shard];
  if (now >= link.reopen_at) {
    link.reopen_at = absl::InfiniteFuture();
    link.moves = false;
    link.stream->Open(link.newest());
    pipeline_.StreamReset(shard, effects);
  }
  if (now >= link.retry_at) {
    link.retry_at = absl::InfiniteFuture();
    pipeline_.RetryDue(shard, effects);
  }
  if (now >= link.silent_since + patience_) {
    // A connected shard without requests has nothing to answer.
    if (!leaving_ && !link.stream->Connected()) {
      (void)FailLocked(Unreachable(shard));
    } else if (!leaving_ && !link.stream->Begun()) {
      options_.logger.Warning("shard ", shard, " at ", link.stream->address(),
                              " is connected but has not begun this worker's stream for ",
                              absl::FormatDuration(patience_),
                              "; waiting: is it busy, or is it another build?");
    }
    link.silent_since = absl::InfiniteFuture();
  }
}

absl::Time JoinedSession::NextTimer() const {
  absl::Time next = absl::InfiniteFuture();
  if (Over()) return next;
  for (const ShardLink& link : links_) {
    next = std::min({next, link.reopen_at, link.retry_at, link.silent_since + patience_});
  }
  return next;
}

}  // namespace sluice::worker
