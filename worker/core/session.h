// Session: one worker's seat in a job, in spans rather than any framework's tensors. The seam that
// language bindings and worker/torch use; worker/rpc implements it over gRPC, tests in memory.
//
// A step: Submit every tensor (any order; reverse order overlaps best) or Skip, then Wait, then
// Apply every tensor. Submit may be called from one other thread than the rest (an autograd
// thread), never two at once. Of tensors that are buffers the values are submitted, not a gradient,
// after all that the step does to them and only where BuffersDue.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/duration_histogram.h"
#include "protocol/compression_plan.h"
#include "protocol/stage_times.h"
#include "protocol/tensor_table.h"
#include "worker/core/gradient_view.h"
#include "worker/core/quality_meter.h"
#include "worker/core/step_clock.h"

namespace sluice::worker {

struct JoinInfo {
  uint32_t rank = 0;
  uint32_t world_size = 0;
  uint64_t first_step = 1;
  bool parameters_agree = true;  // False: call AgreeOnParameters before the first step.
  // A job checkpoint that the run continues from: first_step is the step after it. 0: none.
  uint64_t restored_step = 0;
  // What this rank gave to SaveCheckpoint then; if restored_world_size is not world_size, what rank
  // `rank % restored_world_size` gave.
  std::string restored{};
  uint32_t restored_world_size = 0;  // Ranks that wrote it.
  // Where workers come and go: the ranks that take part in first_step, as far as they are known;
  // empty: `restored` has to say.
  std::vector<uint32_t> members{};
  // As StepResult has it: of a worker that joins others who are further.
  uint64_t steps_behind = 0;
};

// What a step was made of, summed over bundles; those of buffers count only where it says so.
struct StepResult {
  uint64_t step = 0;
  uint32_t n_min = 0;  // Fewest and most contributions that any bundle's mean was divided by.
  uint32_t n_max = 0;
  uint32_t bundles = 0;
  uint32_t bundles_skipped_here = 0;  // This worker's own, for a gradient that was not finite.
  std::string first_skipped_tensor;   // Names one, for the log.
  // Trained tensors that have no mean in any part, ascending: n = 0 in all their bundles, the same
  // on all ranks that do a step together. An optimizer should leave them as they are.
  std::vector<uint32_t> without_mean{};
  // The job wants a checkpoint of the state after this step: call SaveCheckpoint once the step is
  // applied and before anything of the next.
  bool checkpoint_due = false;
  // Buffers were due and somebody had some: Apply every buffer too.
  bool buffers_averaged = false;
  // One of this worker's that was not finite, so that it and others with it went without this
  // worker; empty: none.
  std::string first_skipped_buffer{};
  // Ranks that took part, where workers come and go: as shard 0 closed its first bundle, so that
  // all ranks see the same. Else empty.
  std::vector<uint32_t> members{};
  // That held in the step; null: it was as the job file says.
  std::shared_ptr<const protocol::CompressionPlan> plan{};
  // Steps after this one that closed without this worker, which was late, or that nobody will wait
  // for it in, since it has joined meanwhile: Skip them to catch up.
  uint64_t steps_behind = 0;
  // Of jobs that do not wait for each other: updates by others between the parameters that this
  // contribution was made on and its own; the most of any bundle.
  uint64_t staleness = 0;
};

// A tensor's means or parameters as they lie on a GPU, fp32.
struct GpuTensor {
  uint32_t tensor = 0;
  float* values = nullptr;
  size_t size = 0;  // Elements.
};

// A file that goes into the checkpoint's folder beside the states, for people and other programs.
struct CheckpointFile {
  std::string name;
  std::string bytes;
};

// The job went back to a checkpoint (or to its start): nobody's fault in this session. The session
// is over; a new one that joins goes on from there.
bool IsRollback(const absl::Status& status);
absl::Status RollbackError(absl::string_view message);

// Serialized messages, of the steps so far; parameters agreed at the start not included.
struct TrafficCounters {
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  uint64_t steps = 0;
  double encode_seconds = 0;
  double decode_seconds = 0;
  double exposed_seconds = 0;  // Spent in Wait.
};

// What heartbeats tell the coordinator, for people and pages.
struct Progress {
  uint64_t step = 0;
  uint64_t total_steps = 0;
  uint32_t epoch = 0;
  uint64_t samples = 0;  // Of this worker's, since the job's start.
  double loss = 0;
  double samples_per_second = 0;
  double step_ms_p50 = 0;
  double validation_metric = -1;
  // To the end of the job, last tests included, at the time of the report; none: not known yet.
  std::optional<double> seconds_left{};
};

// What a session knows of itself at a moment, for metrics. Sums are since Join.
struct SessionFigures {
  Progress progress{};  // As Report had it last.
  TrafficCounters traffic{};
  uint64_t dense_bytes = 0;  // What either direction would have been in dense fp32.
  uint64_t bytes_in_flight = 0;
  uint64_t skipped_bundles = 0;  // As StepResult::bundles_skipped_here.
  StepSeconds seconds{};
  protocol::StageSeconds stages{};
  DurationHistogram exchanges{};           // From a step's first frame to its last result.
  std::optional<CodingQuality> quality{};  // None: it is not measured, or was not yet.
};

// Every error is final for the session and says who, where, what and what to do. After one, every
// call returns it.
class Session {
 public:
  virtual ~Session() = default;

  // Waits for all ranks and shards. `parameters_sha256` (32 bytes) is compared between ranks.
  virtual absl::StatusOr<JoinInfo> Join(const protocol::TensorTable& table,
                                        absl::string_view parameters_sha256) = 0;
  // Step 0: replaces `parameters` (one span per tensor, buffers too) by rank 0's values on every
  // rank. Lossless.
  virtual absl::Status AgreeOnParameters(absl::Span<const absl::Span<float>> parameters) = 0;

  // Whether buffers are averaged in the step that is open (from its first Submit to its Wait), or
  // else in the next: every so many steps, and where a checkpoint is taken. Every rank gets the
  // same answer for a step. False in a job without buffers.
  virtual bool BuffersDue() const = 0;
  // Whether Submit takes gradients that lie on a GPU.
  virtual bool TakesGpuViews() const { return false; }
  // Hands tensor `tensor`'s gradient over; what the view shows must stay as it is until Wait
  // returns. Does not block. A buffer outside of the steps that BuffersDue says is an error.
  virtual absl::Status Submit(uint32_t tensor, const GradientView& gradient) = 0;
  // Takes part in the step with nothing: out of data. Instead of all Submits of the step.
  virtual absl::Status Skip() = 0;
  // In a job whose shards do the updates: the rate of the next step's, and of all after it. Before
  // that step's first Submit or Skip; 0 until it is called.
  virtual void SetRate(float rate) = 0;
  // Until every bundle of the step is closed.
  virtual absl::StatusOr<StepResult> Wait() = 0;
  // Writes the mean of the gradients of `tensor` over what was included into `mean` (0 where n =
  // 0). Of a buffer: the mean of its values, or nothing where n = 0. After Wait.
  virtual absl::Status Apply(uint32_t tensor, absl::Span<float> mean) = 0;
  // values[i] += scale * mean[i] instead, for whoever has no use for the mean but that: plain
  // descent is ApplyScaled(tensor, -rate, parameters). Of sparse results it touches only the
  // elements that they name, some times faster. Not for buffers.
  virtual absl::Status ApplyScaled(uint32_t tensor, float scale, absl::Span<float> values) = 0;

  // In a job whose shards do the updates: brings `parameters`, which are as this or
  // AgreeOnParameters left them, to what was published. The same bits on all ranks that have seen
  // the same. After Wait, once; not for buffers.
  virtual absl::Status ApplyUpdate(uint32_t tensor, absl::Span<float> parameters) = 0;

  // Where TakesGpuViews: as Apply, or in a job whose shards do the updates as ApplyUpdate, for
  // tensors that lie on the GPU, all at once. Begins once the event `ready` of the GPU's run-time
  // has come to pass (null: at once), and is done when it returns.
  virtual absl::Status ApplyOnGpu(absl::Span<const GpuTensor> /*tensors*/, void* /*ready*/) {
    return absl::UnimplementedError("this session has no GPU");
  }

  // After a step that said checkpoint_due: takes what the caller needs to go on from here, and
  // what the session has. Writes in the background; if that fails the coordinator is told and
  // training goes on. FAILED_PRECONDITION: no checkpoint is due.
  virtual absl::Status SaveCheckpoint(std::string state, std::vector<CheckpointFile> files) = 0;

  // Thread-safe.
  virtual void Report(const Progress& progress) = 0;
  // The parameters as they are were just tested on data that is not trained on: the share that was
  // right, 0 to 1. Rank 0's is what control.policy accuracy goes by. After Wait.
  virtual void Tested(double /*accuracy*/) {}
  // Tells the coordinator this rank's parameters after `step`; a rank that differs ends the job
  // with an error.
  virtual void ReportParameters(uint64_t step, absl::string_view parameters_sha256) = 0;
  // Thread-safe.
  virtual TrafficCounters traffic() const = 0;
  // Processor time by stage since Join; all 0 from a session that does not measure it. Applying is
  // done on a thread of the caller's, who can tell what it takes.
  virtual protocol::StageSeconds stages() const { return {}; }
  // None before Join, and of a session that keeps none. Thread-safe.
  virtual std::optional<SessionFigures> figures() const { return std::nullopt; }
  // Finished in order. Waits until the coordinator knows; in a job with checkpoints, until all
  // ranks have finished, since a rollback may need this one again.
  virtual absl::Status Leave() = 0;
  // Gives up and tells why, so that the others end with the reason. Best effort.
  virtual void Abandon(absl::string_view reason) = 0;

  // The rest is of relays (docs/protocol.md, "Relays"). The step's contribution to a bundle is the
  // sum of so many, and counts as so many; 0: of none, and the bundle is skipped, whatever is
  // submitted. Before the last Submit of a tensor in it; of the open step, or else of the next.
  virtual absl::Status SetWeight(uint32_t /*shard*/, uint32_t /*bundle*/,
                                 uint32_t /*contributions*/) {
    return absl::UnimplementedError("this session has no weights");
  }
  // What the last step's mean of a bundle was divided by. After Wait.
  virtual uint32_t Contributions(uint32_t /*shard*/, uint32_t /*bundle*/) const { return 0; }
  // The step of the last checkpoint that was named, before or after the last step; 0: none was.
  virtual uint64_t named_checkpoint() const { return 0; }
  // The step of the newest complete checkpoint, as far as this session heard; 0: none. Thread-safe.
  virtual uint64_t durable_step() const { return 0; }
  // Ends the session without a word, as if this process had been lost: whoever is in a call gets
  // CANCELLED. Thread-safe.
  virtual void Cut() {}
};

}  // namespace sluice::worker
