// SPDX-License-Identifier: Apache-2.0
#include "server/shard/request_fence.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::server {

std::string PlaceOf(const protocol::ExchangeRequest& exchange) {
  return absl::StrCat("rank ", exchange.sender.rank, ", step ", exchange.step, ", bundle ",
                      exchange.bundle);
}

absl::Status InvalidRequest(const protocol::ExchangeRequest& exchange, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(PlaceOf(exchange), ": ", what));
}

Alarm Diverged(const ShardOptions& options, absl::string_view after, const absl::Status& found) {
  return {absl::StrCat("training diverged: after ", after, " parameters on shard ", options.shard,
                       " are not finite (", found.message(),
                       "); lower optimizer.lr, or continue from an earlier checkpoint")};
}

RequestFence::RequestFence(const ShardOptions* options, ShardStats* stats)
    : options_(*options),
      stats_(stats),
      generation_(options->generation),
      job_term_(options->term),
      incarnations_(options->incarnations),
      ranks_(incarnations_.size()) {}

// The reasons contain neither the run's number nor a worker's incarnation. A client that knows both
// can send as that worker.
std::string RequestFence::FenceReason(const protocol::Sender& sender) const {
  if (!ended_.empty()) return ended_;
  if (sender.job_uid != options_.job_uid) {
    return absl::StrCat("shard ", options_.shard,
                        " serves another run of the job; this worker belongs to an earlier run, "
                        "start it again");
  }
  if (sender.term != options_.term) {
    return absl::StrCat("the job is in term ", options_.term, ", not ", sender.term);
  }
  if (sender.server_incarnation > options_.server_incarnation) {
    return absl::StrCat("this instance of shard ", options_.shard, " (",
                        options_.server_incarnation, ") was replaced by a newer one (",
                        sender.server_incarnation, ")");
  }
  if (sender.rank >= incarnations_.size()) {
    return absl::StrCat("rank ", sender.rank, " does not exist: the job has ", incarnations_.size(),
                        " ranks");
  }
  if (incarnations_[sender.rank] == 0) {
    return absl::StrCat("rank ", sender.rank,
                        " was taken from its worker, which was silent or gave up, and no worker "
                        "holds it now; join again");
  }
  if (sender.incarnation != incarnations_[sender.rank]) {
    return absl::StrCat("rank ", sender.rank, " is held by another worker");
  }
  return ranks_[sender.rank].fenced;
}

// Returns true if this shard does not know the sender's term yet. Either the shard was cut off from
// the coordinator, or it is suspended and waits for its start.
bool RequestFence::IsBehind(const protocol::Sender& sender) const {
  const bool suspended = job_term_ > options_.term;
  return (ended_.empty() || suspended) && sender.job_uid == options_.job_uid &&
         sender.term > options_.term && sender.term >= job_term_;
}

// Returns true if the sender got its rank in a generation that this shard has not received yet.
// Two instances of a shard can receive a generation at different times.
bool RequestFence::IsGenerationBehind(const protocol::Sender& sender) const {
  return ended_.empty() && sender.job_uid == options_.job_uid && sender.term == options_.term &&
         sender.generation > generation_ && sender.rank < incarnations_.size() &&
         sender.incarnation != incarnations_[sender.rank];
}

bool RequestFence::Pass(StreamId stream, const protocol::ExchangeRequest& exchange, Effects* out) {
  const bool is_term_behind = IsBehind(exchange.sender);
  if (is_term_behind || IsGenerationBehind(exchange.sender)) {
    Answer(
        stream, exchange, protocol::Outcome::kBusy,
        is_term_behind
            ? absl::StrCat("shard ", options_.shard, " is in term ", options_.term, " still")
            : absl::StrCat("shard ", options_.shard, " is in generation ", generation_, " still"),
        out);
    return false;
  }
  std::string fenced = FenceReason(exchange.sender);
  if (!fenced.empty()) {
    ++stats_->refused_fenced;
    Answer(stream, exchange, protocol::Outcome::kFenced, std::move(fenced), out);
    return false;
  }
  RankState& rank = ranks_[exchange.sender.rank];
  if (stream == rank.stream) return true;
  // The older of two streams ends, also if its first request arrives only now: it would wait for
  // results that go to the newer one.
  const StreamId older = std::min(stream, rank.stream);
  if (older != 0) out->push_back(StreamReplaced{older, exchange.sender.rank});
  rank.stream = std::max(stream, rank.stream);
  return true;
}

absl::Status RequestFence::CheckStamps(const protocol::ExchangeRequest& exchange) const {
  if (exchange.sender.generation > generation_) {
    return InvalidRequest(exchange,
                          absl::StrCat("generation ", exchange.sender.generation,
                                       " is not known; the current one is ", generation_));
  }
  if (!std::isfinite(exchange.rate) || exchange.rate < 0) {
    return InvalidRequest(exchange, absl::StrCat("asks for an update at rate ", exchange.rate));
  }
  const uint32_t weight_max =
      options_.weights.empty() || exchange.step == 0 ? 1 : options_.weights[exchange.sender.rank];
  if (exchange.weight == 0 || exchange.weight > weight_max) {
    return InvalidRequest(exchange,
                          absl::StrCat("claims ", exchange.weight, " contributions; it may have ",
                                       weight_max, ": do relay and server run the same job file?"));
  }
  return absl::OkStatus();
}

void RequestFence::Answer(StreamId stream, const protocol::ExchangeRequest& exchange,
                          protocol::Outcome outcome, std::string message, Effects* out) const {
  auto answer = std::make_shared<protocol::ExchangeReply>();
  answer->outcome = outcome;
  answer->step = exchange.step;
  answer->bundle = exchange.bundle;
  if (outcome == protocol::Outcome::kBusy) answer->retry_after_ms = options_.busy_retry_ms;
  // Senders of another run get no information about this job.
  if (outcome == protocol::Outcome::kFenced && exchange.sender.job_uid == options_.job_uid) {
    answer->term = job_term_;
  }
  answer->message = std::move(message);
  out->push_back(SendReply{stream, std::move(answer)});
}

void RequestFence::AskFor(StreamId stream, const protocol::ExchangeRequest& exchange, uint64_t from,
                          Effects* out) {
  ++stats_->asked_for_payload;
  auto answer = std::make_shared<protocol::ExchangeReply>();
  answer->outcome = protocol::Outcome::kNeed;
  answer->step = exchange.step;
  answer->bundle = exchange.bundle;
  answer->need_from = from;
  out->push_back(SendReply{stream, std::move(answer)});
}

void RequestFence::Refuse(StreamId stream, const protocol::ExchangeRequest& exchange,
                          const absl::Status& why, Effects* out) {
  RankState& rank = ranks_[exchange.sender.rank];
  const std::string message(why.message());
  if (++rank.invalid_running < options_.invalid_limit) {
    ++stats_->refused_invalid;
    Answer(stream, exchange, protocol::Outcome::kInvalid, message, out);
    return;
  }
  rank.fenced = absl::StrCat("rank ", exchange.sender.rank, " was refused ", rank.invalid_running,
                             " times in a row and is shut out; last: ", message);
  ++stats_->refused_fenced;
  Answer(stream, exchange, protocol::Outcome::kFenced, rank.fenced, out);
  if (options_.exchange.elastic()) {
    out->push_back(
        RankRefused{exchange.sender.rank, incarnations_[exchange.sender.rank], rank.fenced});
  } else {
    out->push_back(Alarm{rank.fenced});
  }
}

void RequestFence::ShutOut(StreamId stream, const protocol::ExchangeRequest& exchange,
                           std::string why, Effects* out) {
  ++stats_->refused_fenced;
  ranks_[exchange.sender.rank].fenced = std::move(why);
  Answer(stream, exchange, protocol::Outcome::kFenced, ranks_[exchange.sender.rank].fenced, out);
}

void RequestFence::StreamClosed(StreamId stream) {
  for (RankState& rank : ranks_) {
    if (rank.stream == stream) rank.stream = 0;
  }
}

absl::StatusOr<std::vector<uint32_t>> RequestFence::SetMembership(
    uint32_t generation, std::vector<uint64_t> incarnations) {
  if (generation < generation_) {
    return absl::InvalidArgumentError(
        absl::StrCat("generation ", generation, " is older than the current ", generation_));
  }
  if (incarnations.size() != ranks_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a membership of ", incarnations.size(),
                                                   " ranks for a job of ", ranks_.size()));
  }
  std::vector<uint32_t> replaced;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (incarnations[rank] == incarnations_[rank]) continue;
    ranks_[rank] = RankState();
    replaced.push_back(rank);
  }
  generation_ = generation;
  incarnations_ = std::move(incarnations);
  return replaced;
}

RequestFence::Effects RequestFence::End(absl::string_view reason, uint64_t step) {
  Effects out;
  if (!ended_.empty()) return out;
  ended_ = reason.empty() ? "the job has ended" : std::string(reason);
  for (const RankState& rank : ranks_) {
    if (rank.stream == 0) continue;
    protocol::ExchangeRequest last;
    last.sender.job_uid = options_.job_uid;
    last.step = step;
    Answer(rank.stream, last, protocol::Outcome::kFenced, ended_, &out);
  }
  return out;
}

RequestFence::Effects RequestFence::Suspend(uint32_t term, absl::string_view reason,
                                            uint64_t step) {
  job_term_ = std::max(job_term_, term);
  return End(reason.empty() ? "the job rolls back to a checkpoint" : reason, step);
}

}  // namespace sluice::server
