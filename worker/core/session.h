// SPDX-License-Identifier: Apache-2.0
// Session: one worker's membership of a job, from Join (worker/core/job_client.h) to its end. It
// works on spans instead of a framework's tensors. Language bindings and worker/torch use this
// interface. worker/rpc implements it over gRPC, and tests implement it in memory.
//
// For each step, call Submit for every tensor (in any order; reverse order overlaps best) or Skip
// once, then Wait, then Apply for every tensor. Submit may run on a different thread than the other
// methods (such as an autograd thread), but never on two threads at the same time. For a buffer,
// submit its values instead of a gradient, and only in steps where BuffersDue returns true, after
// the step's last change to the buffer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/duration_histogram.h"
#include "protocol/compression_plan.h"
#include "protocol/exchange.h"
#include "protocol/stage_times.h"
#include "worker/core/gradient_view.h"
#include "worker/core/quality_meter.h"
#include "worker/core/step_clock.h"

namespace sluice::worker {

class BundleEncoder;

struct JoinInfo {
  uint32_t rank = 0;
  uint32_t world_size = 0;
  uint64_t first_step = 1;
  bool parameters_agree = true;  // If false, call AgreeOnParameters before the first step.
  // Step of the job checkpoint that the run continues from; first_step is the step after it. 0 if
  // the run does not continue from a checkpoint.
  uint64_t restored_step = 0;
  // The state that this rank passed to SaveCheckpoint at that step. If restored_world_size differs
  // from world_size, this is the state of rank `rank % restored_world_size`.
  std::string restored{};
  uint32_t restored_world_size = 0;  // Number of ranks that wrote the checkpoint.
  // Known participants of first_step in a job with elastic membership. If empty, `restored` must
  // contain them.
  std::vector<uint32_t> members{};
  // As in StepResult, if the job is already at a later step when this worker joins.
  uint64_t steps_behind = 0;
};

// Statistics of a step's mean, summed over bundles. Buffers count only where a comment says so.
struct StepResult {
  uint64_t step = 0;
  uint32_t n_min = 0;  // Smallest and largest number of contributions in the mean of any bundle.
  uint32_t n_max = 0;
  uint32_t bundles = 0;
  // Bundles that this worker skipped because a gradient was not finite.
  uint32_t bundles_skipped_here = 0;
  std::string first_skipped_tensor;  // One of the tensors with such a gradient, for the log.
  // Trained tensors without a mean in any part (n = 0 in all their bundles), in ascending order.
  // The list is the same on all ranks that run a step together. An optimizer should not change
  // these tensors.
  std::vector<uint32_t> without_mean{};
  // The job wants a checkpoint of the state after this step. Call SaveCheckpoint after the step is
  // applied and before the next step begins.
  bool checkpoint_due = false;
  // Buffers were due, and at least one rank contributed buffers. Apply every buffer too.
  bool buffers_averaged = false;
  // One of this worker's buffers with a non-finite value. The means of all buffers in the same
  // bundle exclude this worker. Empty if there is no such buffer.
  std::string first_skipped_buffer{};
  // Ranks that took part, in a job with elastic membership; otherwise empty. Shard 0 fixes the list
  // when it closes the step's first bundle, so that all ranks see the same list. In asynchronous
  // modes, these are the ranks that had a worker when shard 0 sent the result.
  std::vector<uint32_t> members{};
  // Compression plan of the step. Null if the job file's settings applied.
  std::shared_ptr<const protocol::CompressionPlan> plan{};
  // Number of upcoming steps that this worker must Skip to catch up. They closed without this
  // worker because it was late, or do not wait for it because it has just joined.
  uint64_t steps_behind = 0;
  // In jobs without lockstep, the number of other workers' updates between the parameters that this
  // contribution was computed on and its own update. The maximum over all bundles.
  uint64_t staleness = 0;
};

// A tensor whose results have arrived.
struct ReadyTensor {
  uint32_t tensor = 0;
  bool has_mean = true;  // False if the tensor would be in StepResult::without_mean.

  friend bool operator==(const ReadyTensor&, const ReadyTensor&) = default;
};

// Fails with FAILED_PRECONDITION if a caller takes the result of a step as an update (ApplyUpdate)
// but the job publishes means (Apply), or the reverse.
absl::Status CheckTaken(bool as_update, bool shards_update);

// A tensor's means or parameters in GPU memory, as fp32.
struct GpuTensor {
  uint32_t tensor = 0;
  float* values = nullptr;
  size_t size = 0;  // Elements.
};

// An additional file in the checkpoint's folder, for people and other programs.
struct CheckpointFile {
  std::string name;
  std::string bytes;
};

// Returns true if the job rolled back to a checkpoint or to its start. This ends the session,
// although the session did not cause it. A new session can join and continue from the checkpoint.
bool IsRollback(const absl::Status& status);
absl::Status RollbackError(absl::string_view message);

// Traffic of the steps so far, without the parameter agreement at the start. Bytes are sizes of
// serialized messages.
struct TrafficCounters {
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  uint64_t steps = 0;
  double encode_seconds = 0;
  double decode_seconds = 0;
  double exposed_seconds = 0;  // Time spent in Wait.
};

// Progress that heartbeats report to the coordinator for display.
struct Progress {
  uint64_t step = 0;
  uint64_t total_steps = 0;
  uint32_t epoch = 0;
  uint64_t samples = 0;  // Samples of this worker since the start of the job.
  double loss = 0;
  double samples_per_second = 0;
  double step_ms_p50 = 0;
  double validation_metric = -1;
  // Estimated seconds until the end of the job, including its last tests, at the time of the
  // report. Absent while there is no estimate.
  std::optional<double> seconds_left{};
};

// State of a session at one moment, for metrics. Sums are since Join.
struct SessionFigures {
  Progress progress{};  // The last value passed to Report.
  TrafficCounters traffic{};
  uint64_t dense_bytes = 0;  // Bytes that dense fp32 would have taken, for one direction.
  uint64_t bytes_in_flight = 0;
  uint32_t fragments_in_flight = 0;  // 1 from the first Submit or Skip until Wait returns a result.
  uint64_t skipped_bundles = 0;      // Sum of StepResult::bundles_skipped_here.
  StepSeconds seconds{};
  protocol::StageSeconds stages{};
  DurationHistogram exchanges{};  // From a step's first frame to its last result.
  // Absent if it is not measured, or has not been measured yet.
  std::optional<CodingQuality> quality{};
};

// Every error is final for the session, and its message names the place, the cause and the remedy.
// After an error, every call returns that error.
class Session {
 public:
  virtual ~Session() = default;

  // Step 0: replaces `parameters` (one span per tensor, including buffers) on every rank by rank
  // 0's values. The transfer is lossless.
  virtual absl::Status AgreeOnParameters(absl::Span<const absl::Span<float>> parameters) = 0;

  // Returns true if buffers are averaged in the open step (from its first Submit to its Wait), or
  // in the next step if none is open. Buffers are averaged at a fixed interval of steps and at each
  // checkpoint. Every rank gets the same answer for a step. Always false in a job without buffers.
  virtual bool BuffersDue() const = 0;
  // Returns the parts of the trained tensors that the open step exchanges, or the next step if none
  // is open, by tensor and offset. Submit each of these tensors as a whole; other parts are
  // ignored. In a job with fragments this is one fragment, and otherwise all tensors.
  virtual std::vector<protocol::TensorPart> PartsDue() const = 0;
  // Returns true if Submit accepts gradients in GPU memory.
  virtual bool AcceptsGpuViews() const { return false; }
  // Submits the gradient of `tensor`. The memory behind the view must not change until Wait
  // returns. Does not block. Fails if the tensor is a buffer and BuffersDue returns false for the
  // step.
  virtual absl::Status Submit(uint32_t tensor, const GradientView& gradient) = 0;
  // Takes part in the step without a contribution, for a worker that is out of data. Replaces all
  // Submits of the step.
  virtual absl::Status Skip() = 0;
  // Sets the learning rate of the next step and of all later ones, in a job whose shards do the
  // updates. Call it before that step's first Submit or Skip. The rate is 0 until the first call.
  virtual void SetRate(float rate) = 0;
  // Sets what this worker's contributions to the next step and to all later ones are made from, in
  // a job with `merge_weights: tokens`. Call it before that step's first Submit.
  // A session without servers ignores it.
  virtual void SetWork(const protocol::Work& /*work*/) {}
  // Waits until every bundle of the step is closed.
  virtual absl::StatusOr<StepResult> Wait() = 0;
  // Like Wait, but returns no result if the step is still open after `limit`. The caller then calls
  // WaitFor or Wait again. The default implementation waits without a limit.
  virtual absl::StatusOr<std::optional<StepResult>> WaitFor(absl::Duration /*limit*/) {
    absl::StatusOr<StepResult> result = Wait();
    if (!result.ok()) return result.status();
    return *std::move(result);
  }
  // Waits for results while the step is open. Returns the tensors whose results have arrived and
  // that no earlier call returned in this step, without buffers that are not due. The caller may
  // Apply them at once, before it calls Wait or WaitFor. Returns no tensors if the step is over or
  // after `limit`. Fails as Wait does.
  virtual absl::StatusOr<std::vector<ReadyTensor>> WaitForTensors(absl::Duration /*limit*/) {
    return std::vector<ReadyTensor>();
  }
  // Writes the mean of the gradients of `tensor` over the included contributions into `mean`, with
  // 0 where n = 0. For a buffer, writes the mean of its values and leaves elements with n = 0
  // unchanged. Call after Wait, or after WaitForTensors has returned `tensor`.
  virtual absl::Status Apply(uint32_t tensor, absl::Span<float> mean) = 0;
  // Adds scale * mean[i] to values[i], for a caller that does not need the mean itself. For
  // example, plain descent is ApplyScaled(tensor, -rate, parameters). Sparse results touch only the
  // elements that they list, which is several times faster. Must not be called for buffers. Call
  // when Apply could be called.
  virtual absl::Status ApplyScaled(uint32_t tensor, float scale, absl::Span<float> values) = 0;

  // Brings `parameters` up to the published version, in a job whose shards do the updates.
  // `parameters` must still have the values that this method or AgreeOnParameters wrote. All ranks
  // that have seen the same results get the same bits. Call once per tensor after Wait, and not for
  // buffers.
  virtual absl::Status ApplyUpdate(uint32_t tensor, absl::Span<float> parameters) = 0;

  // Does the work of Apply, or of ApplyUpdate in a job whose shards do the updates, for many
  // tensors in GPU memory at once. Requires AcceptsGpuViews. Starts after the GPU runtime's event
  // `ready` has completed (at once if null) and returns when the work is done.
  virtual absl::Status ApplyOnGpu(absl::Span<const GpuTensor> /*tensors*/, void* /*ready*/) {
    return absl::UnimplementedError("this session has no GPU");
  }

  // Saves a checkpoint of `state` and of the session's own state, after a step with checkpoint_due.
  // The coordinator accepts `files` from rank 0 only.
  // Writes in the background. If the write fails, the session reports it to the coordinator and
  // training continues. Fails with FAILED_PRECONDITION if no checkpoint is due.
  virtual absl::Status SaveCheckpoint(std::string state, std::vector<CheckpointFile> files) = 0;

  // Returns true if this worker should give followers its parameters after `step`: the job has
  // followers, its shards keep no parameters, this is rank 0, and a follower is connected. Ask
  // after each step that is applied, and with `is_last` before Leave. Thread-safe.
  virtual bool WantsWeights(uint64_t /*step*/, bool /*is_last*/) const { return false; }
  // Gives followers the parameters after `step`, with one span per trained tensor in storage order.
  // Copies them before it returns. Call it if WantsWeights returns true.
  virtual void PublishWeights(uint64_t /*step*/,
                              absl::Span<const absl::Span<const float>> /*parameters*/,
                              bool /*is_last*/) {}

  // Returns the encoder of this session's contributions, which has observed all results. The caller
  // may use it until the next Submit or Skip. Fails with FAILED_PRECONDITION, without ending the
  // session, while a step is open.
  virtual absl::StatusOr<BundleEncoder*> EncoderBetweenSteps() {
    return absl::UnimplementedError("this session has no encoder");
  }

  // Thread-safe.
  virtual void Report(const Progress& progress) = 0;
  // Reports the accuracy (0 to 1) of the current parameters on data that is not used for training.
  // Rank 0's value drives control.policy accuracy. Call after Wait.
  virtual void Tested(double /*accuracy*/) {}
  // Reports the hash of this rank's parameters after `step` to the coordinator. If ranks differ,
  // the job ends with an error.
  virtual void ReportParameters(uint64_t step, absl::string_view parameters_sha256) = 0;
  // Thread-safe.
  virtual TrafficCounters traffic() const = 0;
  // Processor time by stage since Join; all 0 if the session does not measure it. It excludes
  // applying, which the caller does on its own thread and can measure itself.
  virtual protocol::StageSeconds stages() const { return {}; }
  // Absent for a session that keeps no figures. Thread-safe.
  virtual std::optional<SessionFigures> figures() const { return std::nullopt; }
  // Leaves the job cleanly. Waits until the coordinator confirms. In a job with checkpoints, also
  // waits until all ranks have finished, because a rollback may need this rank again.
  virtual absl::Status Leave() = 0;
  // Gives up and reports the reason, so that the other workers end with that reason. Best effort.
  // Thread-safe: a Wait or Leave in another thread ends with CANCELLED.
  virtual void Abandon(absl::string_view reason) = 0;
};

}  // namespace sluice::worker
