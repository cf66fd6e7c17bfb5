// Shard: the state machine of one shard of a job. docs/protocol.md has the rules. Pure: time comes
// in, effects go out as values; the same events give the same effects. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "job/control_spec.h"
#include "job/job_spec.h"
#include "job/momentum.h"
#include "job/optimizer_spec.h"
#include "protocol/compression_plan.h"
#include "protocol/compression_spec.h"
#include "protocol/exchange.h"
#include "protocol/layout.h"
#include "protocol/snapshot.h"
#include "protocol/stage_times.h"
#include "protocol/tensor_table.h"
#include "server/control/measurements.h"
#include "server/shard/notice.h"
#include "server/shard/result_log.h"
#include "server/shard/shard_stats.h"

namespace sluice::server {

// Names one Exchange stream; never 0. A stream that was opened later has a higher id.
using StreamId = uint64_t;

struct ShardOptions {
  uint32_t shard = 0;  // Its index in `layout`.
  protocol::TensorTable table;
  protocol::Layout layout;
  protocol::CompressionSpec compression;
  // Modes in lockstep, neither with a quorum nor elastic. Of shard 0 it makes the plans.
  job::ControlSpec control{};
  std::string mode =
      "sync";              // As of the job; what is not sync or local_sgd closes nothing together.
  uint32_t staleness = 0;  // ssp
  bool staleness_aware_lr = false;  // async, ssp: a rate is divided by 1 + the staleness.
  // The update of the parameters that it keeps (ShardOptimizer); none: it keeps none and publishes
  // means. With one, step 0 always brings the parameters.
  std::optional<job::OptimizerSpec> rule{};
  // Of the rule, if that is the job's optimizer: it may be lower than the rule's own, and plans say
  // theirs. None: the rule's own, always.
  std::optional<double> rule_momentum{};
  job::MomentumRange momentum{};  // Of the job's optimizer, wherever that is; for plans.
  uint64_t job_uid = 0;
  uint32_t term = 0;
  uint32_t generation = 1;
  uint64_t server_incarnation = 0;
  std::vector<uint64_t> incarnations;  // Of each rank's worker; as many as the world has ranks.
  uint64_t first_step = 1;
  bool parameters_agree = true;  // False: step 0, the parameter agreement, comes before first_step.
  // Of mode sync: a bundle closes without the others when so many ranks are there, and `grace` is
  // over since the last of them came; 0: never. Goes with neither replay nor replay_bytes: who was
  // included does not follow from what the workers kept.
  uint32_t quorum = 0;
  absl::Duration grace{};
  // Workers come and go; modes in lockstep. Incarnation 0: nobody holds the rank, and nobody waits
  // for it. Whoever takes one later (SetMembership) is waited for in a bundle once it was there in
  // time for it; until then it skips.
  bool elastic = false;
  uint64_t average_buffers_every =
      job::kAverageBuffersEvery;  // Steps; in these buffers wait for all.
  // Of a job whose workers are relays, by rank: how many contributions one may have inside;
  // empty: 1.
  std::vector<uint32_t> weights{};
  // A relay's: a bundle whose contributions are all there is not closed but handed on as a sum
  // (BundleSummed), and closes with what Publish brings. Mode sync without a quorum, elastic or a
  // rule.
  bool hands_on = false;
  uint64_t window_bytes = 16 << 20;         // Credits of each worker.
  uint64_t max_memory = uint64_t{8} << 30;  // See Create and Handle.
  ResultLogLimits log;
  // Of results that all ranks have, kept until ReleaseResults for workers that are started again
  // and go through those steps anew; 0: they are forgotten. In place of log's limits. No more than
  // max_memory leaves: Stats().log_limit.
  uint64_t replay_bytes = 0;
  // The other parties may be further than first_step: the workers send again what this shard lost.
  // Requests that show so are answered NEED with the open step, and change nothing.
  bool replay = false;
  // Of a rank's admitted contributions to bundles that are not closed: so many go without a
  // PENDING, since their RESULT gives the credits back too. 0: none.
  uint64_t unanswered_bytes = 0;
  uint32_t invalid_limit = 3;   // So many invalid ones running fence a rank.
  uint32_t busy_retry_ms = 50;  // What BUSY says at first; an eighth of the step's wait later,
  uint32_t busy_retry_ms_max = 1000;                   // up to this.
  absl::Duration straggler_notice = absl::Seconds(5);  // Of waiting for the last rank.
  // Of the step before first_step, to go on from bit for bit; null: begin with nothing. Create lets
  // go of it.
  std::shared_ptr<const protocol::ShardSnapshot> restore;
  uint32_t restored_ranks = 0;  // That wrote it; 0: as many as now.
  // Not owned; null: nobody measures. Changes nothing but what it measures.
  protocol::StageTimes* stages = nullptr;
  // Is to run what it is given, which copies the shard for a snapshot and changes nothing. Others
  // may call const members meanwhile. Null: the copy is made at once.
  std::function<void(absl::FunctionRef<void()>)> run_copy{};
};

// The shard's part of all elements; 1 if it has none.
double ShareOfElements(const ShardOptions& options);

// Send `answer` on `stream`. A RESULT that goes to several streams is one object.
struct Reply {
  StreamId stream = 0;
  std::shared_ptr<const protocol::ExchangeAnswer> answer;
};
// The job cannot go on; for the coordinator and the log.
struct Alarm {
  std::string text;
};
// Of shard 0: the results that follow are the first of this shard to say that a job checkpoint is
// due after `step`. With ShardOptions::replay also of one that an earlier process had named.
struct CheckpointNamed {
  uint64_t step = 0;
};
// Of shard 0: it has made a plan, which the results that follow announce. With ShardOptions::replay
// also one that an earlier process had made.
struct PlanMade {
  std::shared_ptr<const protocol::CompressionPlan> plan;
};
// The shard's part of a job checkpoint, to be written. Comes right after the step's last results;
// nothing of later steps is in it.
struct TakeSnapshot {
  std::shared_ptr<const protocol::ShardSnapshot> snapshot;
};
// The new holder of `rank` cannot go through `step` as the one before did: it sent other bytes
// (training is not deterministic), or needs a result that is no longer kept. The job must go back
// to a checkpoint. The sender is answered BUSY, and this comes again when it tries again.
struct NotReproducible {
  uint32_t rank = 0;
  uint64_t step = 0;
  std::string text;
};
// What a shard that hands on (ShardOptions) has of a bundle when all its contributions are there.
struct BundleSum {
  uint32_t term = 0;
  uint64_t step = 0;
  uint32_t bundle = 0;
  uint32_t n = 0;          // Contributions in it; 0: all have skipped.
  std::vector<float> sum;  // Of its chunks, one after the other; of step 0 rank 0's parameters.
                           // Empty if n is 0.
};
// The bundle waits for its Publish. Shared, since effects are copied.
struct BundleSummed {
  std::shared_ptr<const BundleSum> sum;
};
using ShardEffect = std::variant<Reply, Alarm, Notice, CheckpointNamed, PlanMade, TakeSnapshot,
                                 NotReproducible, BundleSummed>;

// With what a bundle closes that was handed on.
struct Publication {
  uint64_t step = 0;
  uint32_t bundle = 0;
  uint32_t n = 0;           // Contributions that the mean is of, here and elsewhere; 0: nothing.
  std::vector<float> mean;  // As BundleSum::sum; empty if n is 0.
  // A checkpoint is due after this step; 0: none that is known. The same with all publications of a
  // step, and not the first time with one of that very step.
  uint64_t checkpoint_step = 0;
};

class Shard {
 public:
  virtual ~Shard() = default;
  // INVALID_ARGUMENT: options that do not fit together, a snapshot of another run, shard, layout or
  // compression. RESOURCE_EXHAUSTED: sums, residuals and the ranks' windows do not fit in
  // max_memory; the message says how much would.
  static absl::StatusOr<std::unique_ptr<Shard>> Create(ShardOptions options);

  // One request of a worker, answered at once on its stream: RESULT, PENDING, NEED, FENCED, INVALID
  // or BUSY. One that completes a bundle is answered by the RESULT that goes to every rank's latest
  // stream. Over max_memory the answer is BUSY, except for the lowest open bundle of the open step,
  // which is always admitted.
  virtual std::vector<ShardEffect> Handle(StreamId stream, protocol::Exchange exchange,
                                          absl::Time now) = 0;
  // Nothing can be sent on it any more. What its rank has admitted stays.
  virtual void StreamClosed(StreamId stream) = 0;
  // Generation and holders of all ranks, as the coordinator says. A changed incarnation fences the
  // one before; what that one has admitted stays, and what the new one sends of the same steps must
  // be the same bytes; of an elastic job, skips. What waited for those who are gone is closed by
  // the next Tick, which is due at once. INVALID_ARGUMENT: a lower generation, or another number of
  // ranks.
  virtual absl::Status SetMembership(uint32_t generation, std::vector<uint64_t> incarnations) = 0;
  // The newest complete checkpoint is that after `durable_step`: nobody will ask for results up to
  // it again. They are forgotten as soon as all ranks have acknowledged them.
  virtual void ReleaseResults(uint64_t durable_step) = 0;
  // The oldest step from which on all results are kept, for a worker that begins with it; 0: none
  // are kept.
  virtual uint64_t results_from() const = 0;
  // Ends it: streams and all later requests are answered FENCED with `reason`.
  virtual std::vector<ShardEffect> End(absl::string_view reason) = 0;
  // As End, because the job goes back to a checkpoint in `term`, which the answers carry: the
  // workers are to join again.
  virtual std::vector<ShardEffect> Suspend(uint32_t term, absl::string_view reason) = 0;
  // Of shard 0: asks for a job checkpoint and returns the step it is to be after: at least
  // `minimum_step` and two after the open one. It is named no sooner than it must, by the first
  // result that says it; a later call replaces one that is not named yet. From then on every result
  // says it until its step is closed, so that all workers know it, and through their requests all
  // other shards, before any can close that step. Until then it stays, and later calls change
  // nothing. With ShardOptions::replay it waits, and the step rises, until this shard is where the
  // workers are.
  virtual uint64_t NameCheckpoint(uint64_t minimum_step) = 0;
  // Closes a bundle that was handed on. Of any other step or bundle: nothing.
  virtual std::vector<ShardEffect> Publish(const Publication& /*publication*/) { return {}; }
  // Says who is late, once per step, and does what has become due.
  virtual std::vector<ShardEffect> Tick(absl::Time now) = 0;
  // Of shard 0: what was measured of a step, for a control that goes by it. The next plan is made
  // of the last that came, once.
  virtual void Measured(const StepMeasurements& /*measured*/) {}
  // When the next Tick has something to do that should not wait. Any call may change it.
  virtual absl::Time tick_due() const { return absl::InfiniteFuture(); }

  // What is logged after `step`, in (bundle, step) order; `bundles` empty: all.
  virtual std::vector<std::shared_ptr<const protocol::ExchangeAnswer>> ResultsAfter(
      uint64_t step, const std::vector<uint32_t>& bundles) const = 0;
  // Why this sender would be fenced; empty if it would not.
  virtual std::string FenceReason(const protocol::Sender& sender) const = 0;

  virtual ShardStats Stats() const = 0;
  // Sum of squares over what DownlinkResidual tells. Walks it.
  virtual double ResidualEnergy() const = 0;
  // What was not published yet of a chunk, by its position in the bundle; empty: nothing is owed.
  virtual absl::Span<const float> DownlinkResidual(uint32_t bundle, size_t position) const = 0;
  // The plan that the open step is coded by; null: the job file's codecs.
  virtual std::shared_ptr<const protocol::CompressionPlan> plan() const { return nullptr; }
  // The lowest that some rank has not contributed to.
  virtual uint64_t open_step() const = 0;
  virtual uint32_t bundles() const = 0;
  virtual const ShardOptions& options() const = 0;
};

}  // namespace sluice::server
