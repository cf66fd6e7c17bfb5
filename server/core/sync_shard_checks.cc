// What a shard refuses, and what it says then.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compress/frame.h"
#include "server/core/sync_shard.h"

namespace sluice {
namespace {

// "rank 2, step 12, bundle 0": where a refused request belongs.
std::string Place(const Exchange& exchange) {
  return absl::StrCat("rank ", exchange.sender.rank, ", step ", exchange.step, ", bundle ",
                      exchange.bundle);
}

absl::Status Invalid(const Exchange& exchange, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(Place(exchange), ": ", what));
}

}  // namespace

std::string SyncShard::FenceReason(const Sender& sender) const {
  if (!ended_.empty()) return ended_;
  if (sender.job_uid != options_.job_uid) {
    return absl::StrCat("shard ", options_.shard, " serves job ", absl::Hex(options_.job_uid),
                        ", not ", absl::Hex(sender.job_uid),
                        "; this worker belongs to an earlier run, start it again");
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
  if (sender.incarnation != incarnations_[sender.rank]) {
    return absl::StrCat("rank ", sender.rank, " is held by another worker (incarnation ",
                        absl::Hex(incarnations_[sender.rank]), ", not ",
                        absl::Hex(sender.incarnation), ")");
  }
  return ranks_[sender.rank].fenced;
}

absl::Status SyncShard::CheckAddress(const Exchange& exchange) const {
  if (exchange.bundle >= bundles_.size()) {
    return Invalid(exchange,
                   absl::StrCat("shard ", options_.shard, " has ", bundles_.size(),
                                " bundles; worker and shard cut the tensors differently"));
  }
  if (exchange.step > StepAfter(open_step_)) {
    return Invalid(exchange,
                   absl::StrCat("more than one step ahead of the open step ", open_step_));
  }
  if (exchange.acked_step > 0 && exchange.acked_step >= open_step_) {
    return Invalid(exchange, absl::StrCat("acknowledges step ", exchange.acked_step, ", but step ",
                                          open_step_, " is still open"));
  }
  if (exchange.sender.generation > generation_) {
    return Invalid(exchange, absl::StrCat("generation ", exchange.sender.generation,
                                          " is not known; it is ", generation_));
  }
  if (exchange.plan_id != 0) {
    return Invalid(exchange, absl::StrCat("compression plan ", exchange.plan_id, " is not known"));
  }
  if (!std::isfinite(exchange.rate) || exchange.rate < 0) {
    return Invalid(exchange, absl::StrCat("asks for an update at rate ", exchange.rate));
  }
  return CheckCheckpointStep(exchange);
}

// Shard 0 names them, two steps ahead; so one that it has not named is of nobody. But shard 0 may
// be another process than the one that named it, or have named another since that one was lost:
// what can be one is believed, and a checkpoint that not all parties know of is given up.
absl::Status SyncShard::CheckCheckpointStep(const Exchange& exchange) const {
  const uint64_t step = exchange.checkpoint_step;
  if (step == 0 || step < open_step_ || step == DueCheckpoint()) return absl::OkStatus();
  if (options_.shard == 0 && !options_.replay) {
    return Invalid(exchange,
                   absl::StrCat("speaks of a checkpoint after step ", step, ", but ",
                                due_.empty() ? "none is named"
                                             : absl::StrCat("the one that is named is after step ",
                                                            DueCheckpoint())));
  }
  if (step <= StepAfter(StepAfter(exchange.step))) return absl::OkStatus();
  return Invalid(exchange, absl::StrCat("speaks of a checkpoint after step ", step,
                                        ", but none is named more than two steps ahead"));
}

absl::Status SyncShard::CheckPayload(const Exchange& exchange, bool repeats) const {
  if (exchange.skip) {
    if (!exchange.frames.empty()) return Invalid(exchange, "a skip carries frames");
    if (exchange.step == 0 && exchange.sender.rank == 0) {
      return Invalid(exchange, "rank 0 must send its parameters in step 0");
    }
    return absl::OkStatus();
  }
  if (exchange.step == 0 && exchange.sender.rank != 0) {
    return Invalid(exchange, "only rank 0 sends parameters in step 0; the others skip");
  }
  const size_t wanted = bundles_[exchange.bundle].counts.size();
  if (exchange.frames.size() != wanted) {
    return Invalid(exchange, absl::StrCat(exchange.frames.size(), " frames for ", wanted,
                                          " chunks; worker and shard cut the tensors differently"));
  }
  for (size_t i = 0; i < wanted; ++i) {
    const absl::Status valid = CheckFrame(exchange, i, repeats);
    if (!valid.ok()) return valid;
  }
  return absl::OkStatus();
}

absl::Status SyncShard::CheckFrame(const Exchange& exchange, size_t position, bool repeats) const {
  const absl::Span<const std::byte> frame = FrameBytes(exchange.frames[position]);
  const BundlePlan& plan = bundles_[exchange.bundle];
  absl::Status valid = exchange.step == 0 || repeats
                           ? ValidateFrame(frame, plan.counts[position])
                           : plan.aggregators[position]->Validate(exchange.sender.rank, frame);
  if (valid.ok() && exchange.step == 0 && ReadFrameHeader(frame)->format != FormatId::kNone) {
    valid = absl::InvalidArgumentError("parameters travel with codec none");
  }
  if (valid.ok()) return valid;
  const uint32_t id = options_.layout.bundles[options_.shard][exchange.bundle].chunks[position];
  const Chunk& chunk = options_.layout.chunks[id];
  return Invalid(exchange, absl::StrCat("chunk ", id, " (", options_.table[chunk.tensor].name,
                                        ", elements ", chunk.offset, " to ",
                                        chunk.offset + chunk.count - 1, "): ", valid.message()));
}

bool SyncShard::OverMemory(const Exchange& exchange) const {
  uint32_t lowest = 0;
  while (lowest < closed_.size() && closed_[lowest]) ++lowest;
  if (exchange.step == open_step_ && exchange.bundle == lowest) return false;
  uint64_t bytes = reserved_bytes_ + stats_.held_bytes + log_.bytes();
  for (const std::string& frame : exchange.frames) bytes += frame.size();
  return bytes > options_.max_memory;
}

}  // namespace sluice
