// SPDX-License-Identifier: Apache-2.0
// Shard: the state machine of one shard of a job; docs/protocol.md has the rules. Pure: callers
// pass the time, effects are returned as values, and equal events produce equal effects. Not
// thread-safe.
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
#include "job/exchange_spec.h"
#include "job/momentum.h"
#include "job/optimizer_spec.h"
#include "protocol/compression_plan.h"
#include "protocol/exchange.h"
#include "protocol/job_defaults.h"
#include "protocol/layout.h"
#include "protocol/snapshot.h"
#include "protocol/stage_times.h"
#include "protocol/tensor_table.h"
#include "server/control/measurements.h"
#include "server/shard/notice.h"
#include "server/shard/result_log.h"
#include "server/shard/shard_stats.h"

namespace sluice::server {

class ShardParameters;

// Identifies one Exchange stream; never 0. Later streams have higher ids.
using StreamId = uint64_t;

struct ShardOptions {
  uint32_t shard = 0;  // Index of the shard in `layout`.
  protocol::TensorTable table;
  protocol::Layout layout;
  // How the job exchanges gradients. Shard 0 makes the plans of `exchange.control`. In asynchronous
  // modes, every contribution closes alone. A quorum excludes `replay`, because the state that
  // workers keep does not record which ranks were included. With elastic membership,
  // incarnation 0 means that no worker holds the rank and the shard does not wait for it. A worker
  // that takes a rank later (SetMembership) skips until it is in time for a bundle. From then on,
  // that bundle waits for the worker.
  job::ExchangeSpec exchange{};
  // Update rule for the shard's parameters (ShardOptimizer). Without a rule, the shard keeps no
  // parameters and publishes means. With a rule, step 0 always sends the parameters.
  std::optional<job::OptimizerSpec> rule{};
  // Initial momentum, if the rule is the job's optimizer. It may be lower than the momentum of the
  // rule, and plans may change it. If unset, the rule always keeps its own momentum.
  std::optional<double> rule_momentum{};
  // Momentum range of the job's optimizer, on workers or shards. Used for plans.
  job::MomentumRange momentum{};
  uint64_t job_uid = 0;
  uint32_t term = 0;
  uint32_t generation = 1;
  uint64_t server_incarnation = 0;
  std::vector<uint64_t> incarnations;  // By rank, for all ranks of the job.
  uint64_t first_step = 1;
  // If false, step 0 makes the workers' parameters equal before first_step.
  bool parameters_agree = true;
  // If the workers are relays: the maximum number of contributions in each rank's sum, by rank. If
  // empty, 1 for each rank.
  std::vector<uint32_t> weights{};
  // True on a relay's shard. When all contributions to a bundle have arrived, the shard emits their
  // sum (BundleSummed) and closes the bundle in Publish. Requires a lockstep mode without a
  // quorum, elastic membership or an update rule.
  bool forwards_sums = false;
  // On a relay's shard, if the parent job makes plans: the parent's plan of the first step. Later
  // plans come with Publish. None of them changes the rack's codecs.
  std::shared_ptr<const protocol::CompressionPlan> parent_plan{};
  // Credit of each worker, in bytes.
  uint64_t window_bytes = protocol::defaults::kServerWindowBytes;
  // In bytes; see Create and Handle.
  uint64_t max_memory = protocol::defaults::kServerMaxMemory;
  ResultLogLimits log;
  // Bytes of results that the shard keeps after all ranks have them. Restarted workers replay these
  // steps; ReleaseResults frees them. 0 keeps none. Replaces the limits of `log` and cannot exceed
  // the memory that max_memory leaves (Stats().log_limit).
  uint64_t replay_bytes = 0;
  // True if the workers may be ahead of first_step and resend data that this shard lost. If a
  // request shows that, the shard answers NEED with its open step and changes nothing.
  bool replay = false;
  // Bytes of a rank's contributions to open bundles that may stay unanswered. Beyond that, the
  // shard sends PENDING. The RESULT returns the credit too. 0 acknowledges every contribution.
  uint64_t unanswered_bytes = 0;
  uint32_t invalid_limit = 3;  // A rank is fenced after this many invalid requests in a row.
  // The first delay in a BUSY answer. The delay rises to an eighth of the time that the step has
  // waited, but at most to busy_retry_ms_max.
  uint32_t busy_retry_ms = 50;
  uint32_t busy_retry_ms_max = 1000;
  absl::Duration straggler_notice = absl::Seconds(5);  // A notice names late ranks after this time.
  // Snapshot of the step before first_step. The shard continues from it bit for bit. If null, the
  // shard begins without state. Create releases the snapshot.
  std::shared_ptr<const protocol::ShardSnapshot> restore;
  // Number of ranks of the job that wrote the snapshot; 0 if it has not changed.
  uint32_t restored_ranks = 0;
  // Sums contributions and encodes results on this many threads, at least 1.
  size_t threads = 1;
  // Not owned; null disables the measurement of times.
  protocol::StageTimes* stages = nullptr;
  // Runs the given function, which copies the shard for a snapshot and changes nothing. Other
  // threads may call const members during the copy. If null, the calling thread copies.
  std::function<void(absl::FunctionRef<void()>)> run_copy{};
};

// Returns the shard's share of all elements, or 1 if the shard has none.
double ShareOfElements(const ShardOptions& options);

// Send `answer` on `stream`. Streams that receive the same RESULT share one object.
struct SendReply {
  StreamId stream = 0;
  std::shared_ptr<const protocol::ExchangeReply> answer;
};
// A newer stream of the same rank has replaced this one. End it with ABORTED, so that its client
// notices and asks again. The effect may name a stream that has ended.
struct StreamReplaced {
  StreamId stream = 0;
  uint32_t rank = 0;
};
// The job cannot continue. The coordinator and the log receive the text.
struct Alarm {
  std::string text;
};
// From shard 0: the results that follow announce a job checkpoint after `step` for the first time.
// With ShardOptions::replay, this effect also reports a checkpoint that an earlier process named.
struct CheckpointNamed {
  uint64_t step = 0;
};
// From shard 0: the shard has made a plan, and the results that follow announce it. With
// ShardOptions::replay, this effect also reports a plan that an earlier process made.
struct PlanMade {
  std::shared_ptr<const protocol::CompressionPlan> plan;
};
// The shard's part of a job checkpoint, which the receiver must write. Follows directly after the
// last results of the step and contains nothing from later steps.
struct WriteSnapshot {
  std::shared_ptr<const protocol::ShardSnapshot> snapshot;
};
// The new holder of `rank` cannot replay `step`. Either it sent different bytes than its
// predecessor, because training is not deterministic, or it needs a result that is no longer kept.
// The job must roll back. The sender gets BUSY, and a retry emits this effect again.
struct NotReproducible {
  uint32_t rank = 0;
  uint64_t step = 0;
  std::string text;
};
// In an elastic job: the shard has fenced the rank's holder after too many invalid requests in a
// row. The coordinator must remove it, because bundles still wait for it.
struct RankRefused {
  uint32_t rank = 0;
  uint64_t incarnation = 0;  // The holder's incarnation.
  std::string text;
};
// The sum of a bundle on a shard with forwards_sums. All contributions have arrived.
struct BundleSum {
  uint32_t term = 0;
  uint64_t step = 0;
  uint32_t bundle = 0;
  uint32_t n = 0;  // Number of contributions in the sum; 0 if all ranks skipped.
  float rate = 0;  // Rate of the lowest rank in the sum; 0 if n is 0.
  // Sums of the bundle's chunks, in order; in step 0, rank 0's parameters. Empty if n is 0.
  std::vector<float> sum{};
};
// The bundle waits for its Publish. The sum is shared, because effects are copied.
struct BundleSummed {
  std::shared_ptr<const BundleSum> sum;
};
using ShardEffect =
    std::variant<SendReply, StreamReplaced, Alarm, Notice, CheckpointNamed, PlanMade, WriteSnapshot,
                 NotReproducible, RankRefused, BundleSummed>;

// The parent job's result for a bundle whose sum was forwarded.
struct Publication {
  uint64_t step = 0;
  uint32_t bundle = 0;
  // Number of contributions in the mean, from this rack and others; 0 if there are none.
  uint32_t n = 0;
  // The mean, or with an update rule the published change of the parameters, or the parameters.
  // Laid out as BundleSum::sum; empty if n is 0.
  std::vector<float> mean{};
  // True if `mean` has the parameters themselves, after the parent's newest update.
  bool exact = false;
  // A checkpoint is due after this step; 0 if none is known. All publications of a step have the
  // same value. A checkpoint is always announced in an earlier step than its own.
  uint64_t checkpoint_step = 0;
  // For the first bundle of shard 0: the plan that the parent's result announced, or null.
  std::shared_ptr<const protocol::CompressionPlan> plan{};
};

class Shard {
 public:
  virtual ~Shard() = default;
  // Fails with INVALID_ARGUMENT if options exclude each other, or if the snapshot belongs to
  // another run, shard, layout or compression. Fails with RESOURCE_EXHAUSTED if sums, residuals and
  // the ranks' windows do not fit in max_memory. The message contains the number of bytes that they
  // need.
  static absl::StatusOr<std::unique_ptr<Shard>> Create(ShardOptions options);

  // Handles one request of a worker and answers it at once on its stream with RESULT, PENDING,
  // NEED, FENCED, INVALID or BUSY. If the request completes a bundle, the answer is the RESULT,
  // which is sent to the newest stream of every rank. Beyond max_memory the answer is BUSY. The
  // lowest open bundle of the open step is always admitted.
  virtual std::vector<ShardEffect> Handle(StreamId stream, protocol::ExchangeRequest exchange,
                                          absl::Time now) = 0;
  // Stops sending on the stream. Admitted contributions of the rank stay.
  virtual void StreamClosed(StreamId stream) = 0;
  // Sets the generation and the holders of all ranks; the coordinator decides both. If an
  // incarnation changes, the previous holder is fenced. Its admitted contributions stay, and the
  // new holder must send the same bytes for the same steps. In an elastic job, the new holder skips
  // these steps. The next Tick, which is due at once, closes bundles that waited only for holders
  // that left. Fails with INVALID_ARGUMENT if the generation is lower or the number of ranks
  // differs.
  virtual absl::Status SetMembership(uint32_t generation, std::vector<uint64_t> incarnations) = 0;
  // Reports that the newest complete checkpoint follows `durable_step`, so no worker will ask for
  // results up to that step again. The shard forgets them as soon as all ranks have acknowledged
  // them.
  virtual void ReleaseResults(uint64_t durable_step) = 0;
  // Returns the first step from which all results are kept, for a worker that begins there; 0 if no
  // results are kept.
  virtual uint64_t results_from() const = 0;
  // Ends the shard. All streams and all later requests are answered FENCED with `reason`.
  virtual std::vector<ShardEffect> End(absl::string_view reason) = 0;
  // Ends the shard as End does, because the job rolls back to a checkpoint in `term`. The answers
  // contain the term and ask the workers to join again.
  virtual std::vector<ShardEffect> Suspend(uint32_t term, absl::string_view reason) = 0;
  // Requests a job checkpoint; only for shard 0. Returns the checkpoint's step, which is at least
  // `minimum_step` and at least two steps after the open one. The shard announces the checkpoint in
  // results as late as possible. Until then, a later call replaces the step; after that, later
  // calls return the same step. From the announcement until the checkpoint's step closes, every
  // result contains the step. So all workers know it, and all other shards learn of it from the
  // workers' requests, before any shard can close that step. With ShardOptions::replay the request
  // waits, and its step rises, until this shard has caught up with the workers.
  virtual uint64_t NameCheckpoint(uint64_t minimum_step) = 0;
  // Returns whether a worker may store a part of the checkpoint after `step` now. Fails with
  // ABORTED if the shard may still learn of the checkpoint, and with INVALID_ARGUMENT if it is
  // over.
  virtual absl::Status CheckPartStep(uint64_t step) const = 0;
  // Closes a bundle whose sum was forwarded. Ignores other steps and bundles.
  virtual std::vector<ShardEffect> Publish(const Publication& /*publication*/) { return {}; }
  // Reports late ranks once per step, and performs work that has become due.
  virtual std::vector<ShardEffect> Tick(absl::Time now) = 0;
  // Gives shard 0 the measurements of a step, for a policy that uses measurements. The next plan
  // uses only the newest ones, and only once.
  virtual void Measured(const StepMeasurements& /*measured*/) {}
  // The time at which the next Tick has urgent work. Any call may change this time.
  virtual absl::Time tick_due() const { return absl::InfiniteFuture(); }

  // Returns why the shard would fence this sender, or an empty string if it would serve the sender.
  virtual std::string FenceReason(const protocol::Sender& sender) const = 0;

  virtual ShardStats Stats() const = 0;
  // Returns the sum of squares of all DownlinkResidual values. Visits every value.
  virtual double ResidualEnergy() const = 0;
  // Returns the values of a chunk that are not published yet. `position` is the chunk's position in
  // the bundle. Empty if there are none.
  virtual absl::Span<const float> DownlinkResidual(uint32_t bundle, size_t position) const = 0;
  // The plan that the open step uses. Null if the step uses the codecs of the job file.
  virtual std::shared_ptr<const protocol::CompressionPlan> plan() const { return nullptr; }
  // The lowest step that at least one rank has not contributed to.
  virtual uint64_t open_step() const = 0;
  // The parameters of a shard with an update rule. Null without one.
  virtual const ShardParameters* parameters() const = 0;
  // The step after which workers have exactly the parameters that parameters()->published returns.
  // In asynchronous modes, the last step to which every rank has contributed. Unset in the middle
  // of a step and without parameters.
  virtual std::optional<uint64_t> settled_step() const = 0;
  virtual uint32_t bundles() const = 0;
  virtual const ShardOptions& options() const = 0;
};

}  // namespace sluice::server
