// SPDX-License-Identifier: Apache-2.0
// Session: one process's participation in a job, for programs in any language. The headers in
// include/sluice use only types of the standard library, so a program needs no other part of Sluice
// to compile. Calls wait on the calling thread. Another thread can end the wait with Abandon.
//
// In each step, call Submit for every tensor, or Skip once. Then call WaitFor until it returns a
// result, and then Apply for every tensor. In mode local_sgd, each worker takes local_steps steps
// of its own, submits how far each parameter went down (its value at the last exchange minus its
// current one), and calls ApplyUpdate in place of Apply. In a job that streams fragments, a step
// exchanges only the parts that PartsDue returns, and local steps go on between Submit and WaitFor.
// Submit accepts tensors in any order; the reverse of the table's order gives the best overlap.
// Submit may run on a different thread than the other calls, but never on two threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/status.h"

namespace sluice::client {

enum class ElementType : uint8_t { kFloat32 = 0, kBfloat16 = 1, kFloat16 = 2 };

enum class LogLevel : uint8_t { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// Receives log lines. Any thread may call the sink, even while it holds locks, so the sink must not
// block and must not call the library.
using LogSink =
    std::function<void(LogLevel level, std::string_view component, std::string_view text)>;

// The parts of a job file that a client needs.
struct JobSummary {
  std::string name{};
  std::string mode{};
  uint32_t workers = 1;
  uint32_t shards = 1;
  std::string uplink{};  // Codec specs in their canonical form.
  std::string downlink{};
  bool shards_update = false;  // True if the shards run the optimizer.
  // True if workers take steps of their own and send the resulting weight changes.
  bool sends_weights = false;
  // These describe mode local_sgd, and have their default values in other modes.
  uint64_t local_steps = 1;       // Steps that each worker takes between two exchanges.
  std::string outer_optimizer{};  // How the shards apply changes: nesterov or average.
  double outer_lr = 1;
  double outer_momentum = 0;
  uint32_t fragments = 1;       // Parts of the model that are exchanged in turns.
  uint64_t fragment_delay = 0;  // Local steps from the begin of an exchange to its end.
  double merge_alpha = 0;       // Weight of a worker's own parameters when it adopts a result.
  std::string merge_weights{};  // `equal`; or `tokens`, which needs calls of SetWork.
  bool checkpoints = false;
  // False if a step may close without some workers, because of a quorum or elastic membership.
  bool waits_for_all = true;
};

// Reads a job from YAML or JSON. Fails with INVALID_ARGUMENT and lists every problem with its line
// and column. Messages use `name` as the name of the text.
[[gnu::visibility("default")]] Result<JobSummary> ReadJob(std::string_view text,
                                                          std::string_view name);

struct SessionOptions {
  std::string job{};             // YAML or JSON. All processes of the job must pass the same text.
  std::string job_name = "job";  // Name of the text in messages.
  // HOST:PORT of shard 0. If it is empty, the process runs alone, without servers.
  std::string coordinator{};
  uint32_t rank = 0;
  double join_timeout_seconds = 60;
  // Threads that encode gradients and apply results: 1 to 256. The bytes on the wire and the
  // results do not depend on this.
  uint32_t threads = 1;
  std::string token_file{};  // Paths of files; each may be empty (docs/security.md).
  std::string tls_cert{};
  std::string tls_key{};
  std::string tls_ca{};
  LogSink log{};  // If it is not set, log lines go to stderr.
};

// A row of the tensor table. All ranks must have the same table.
struct Tensor {
  std::string name{};
  std::vector<int64_t> shape{};
  // In elements; empty means row-major. Strides must leave no gaps and must not overlap.
  std::vector<int64_t> strides{};
  ElementType type = ElementType::kFloat32;
  // Buffers are not trained but averaged at intervals. They come after all trained tensors.
  bool is_buffer = false;
};

// A gradient in memory, in storage order.
struct Gradient {
  const void* data = nullptr;
  size_t size = 0;  // Number of elements.
  ElementType type = ElementType::kFloat32;
  float scale = 1;  // The library multiplies each element by this factor when it reads the element.
};

// Memory for a mean, in storage order. The library multiplies each element by `scale` and rounds it
// to the nearest value of `type`, ties to even. Elements beyond the range of `type` become
// infinite, as in PyTorch.
struct MeanTarget {
  void* data = nullptr;
  size_t size = 0;  // Number of elements.
  ElementType type = ElementType::kFloat32;
  float scale = 1;
};

struct Joined {
  uint32_t rank = 0;
  uint32_t world_size = 0;
  uint64_t first_step = 1;
  // Step of the checkpoint that the job continues from. 0 means that there is none.
  uint64_t restored_step = 0;
  // What this rank passed to SaveCheckpoint at that step. If the number of ranks has changed from
  // R, this is the state of rank `rank % R`.
  std::string restored{};
  bool parameters_agree = true;  // If false, call AgreeOnParameters before the first step.
};

struct StepResult {
  uint64_t step = 0;
  // The smallest and the largest number of contributions in a mean of this step.
  uint32_t n_min = 0;
  uint32_t n_max = 0;
  uint32_t bundles = 0;
  // Bundles that this rank skipped because a gradient was not finite.
  uint32_t bundles_skipped_here = 0;
  std::string first_skipped_tensor{};
  std::vector<uint32_t> without_mean{};  // Tensors to which no rank contributed.
  bool buffers_averaged = false;
  bool checkpoint_due = false;
  uint64_t staleness = 0;  // Number of updates by other workers that the contribution lags behind.
  // With a quorum: number of coming steps that have closed without this rank. It catches up by
  // skipping them.
  uint64_t steps_behind = 0;
};

// Sums since Join. All times are in seconds.
struct Figures {
  uint64_t step = 0;
  uint64_t steps = 0;
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  uint64_t dense_bytes = 0;  // Bytes that each direction would have carried in fp32.
  uint64_t skipped_bundles = 0;
  double encode_seconds = 0;
  double decode_seconds = 0;
  double exposed_seconds = 0;  // Time spent in WaitFor.
};

// Elements of a tensor that are next to each other in storage order.
struct TensorPart {
  uint32_t tensor = 0;
  uint64_t offset = 0;  // Index of the first element.
  uint64_t count = 0;
};

// A tensor whose mean has arrived.
struct ReadyTensor {
  uint32_t tensor = 0;
  bool has_mean = true;  // False if it would be in StepResult::without_mean.
};

class [[gnu::visibility("default")]] Session {
 public:
  // Creates a session. It opens no connection before Join. Fails with INVALID_ARGUMENT if the job
  // or a file is invalid; the message states the problem.
  static Result<std::unique_ptr<Session>> Create(const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Waits for all ranks and shards. The ranks compare `parameters_sha256`, which has 32 bytes. A
  // process without servers may pass an empty string.
  Result<Joined> Join(const std::vector<Tensor>& tensors, std::string_view parameters_sha256);
  // On every rank, replaces `parameters` (one span per tensor) with rank 0's values. The transfer
  // is lossless.
  Status AgreeOnParameters(const std::vector<std::span<float>>& parameters);

  // Returns whether buffers are averaged in the open step, or in the next step if none is open.
  bool BuffersDue() const;
  // Returns the parts of the trained tensors that the open step exchanges, or the next step if none
  // is open, by tensor and offset. Submit each of these tensors as a whole; its other parts are
  // ignored. These are all tensors, unless the job streams fragments.
  std::vector<TensorPart> PartsDue() const;
  // Sets from how many samples (or tokens) and optimizer steps the contributions to the next step,
  // and to all later ones, are made. Call it before that step's first Submit. Only jobs with
  // `merge_weights: tokens` use the numbers, and they need both to be above 0.
  Status SetWork(uint64_t samples, uint64_t steps);
  // Submits a tensor's gradient without blocking. The memory that `gradient` refers to must stay
  // unchanged until WaitFor returns the step's result.
  Status Submit(uint32_t tensor, const Gradient& gradient);
  // Takes part in the step without a contribution. Call Skip once, in place of the Submit calls
  // for the step.
  Status Skip();
  // Returns the step's result, or no value if the step is still open after `seconds`.
  Result<std::optional<StepResult>> WaitFor(double seconds);
  // Waits until means have arrived that no earlier call returned in this step. Returns their
  // tensors, which the program may Apply before WaitFor returns a result. Returns no tensors if the
  // step is over or after `seconds`.
  Result<std::vector<ReadyTensor>> WaitForTensors(double seconds);
  // Writes the mean of `tensor`, or 0 where no rank contributed. Elements of a buffer to which no
  // rank contributed stay unchanged.
  Status Apply(uint32_t tensor, std::span<float> mean);
  // Does the same for other types and with a scale. Fails with INVALID_ARGUMENT, without ending the
  // session, if `tensor` is a buffer, because elements that stay unchanged have no scale.
  Status Apply(uint32_t tensor, const MeanTarget& target);
  // In mode local_sgd, adds what the shards published to `parameters`, which must have the values
  // that this method or AgreeOnParameters wrote. All ranks get the same bits.
  Status ApplyUpdate(uint32_t tensor, std::span<float> parameters);
  // Saves a checkpoint of the program's state and of the session's own state. Call it after a step
  // with checkpoint_due is applied and before the next step begins. Writes in the background.
  Status SaveCheckpoint(std::string_view state);
  // Writes the residual of each trained tensor in storage order, with one span per tensor. Returns
  // everything else that this rank's compressor needs to continue in another job, as bytes with a
  // checksum. The state of the shards is not part of it. Fails with FAILED_PRECONDITION, without
  // ending the session, while a step is open.
  Result<std::string> SaveCompressor(const std::vector<std::span<float>>& residuals);
  // Continues from such a state in a new job with equal tensors and codecs. Resets the state that
  // the shards of the earlier job shared. Call it after Join and before the first step. Fails
  // without a change and without ending the session: with DATA_LOSS if the bytes are damaged, and
  // with INVALID_ARGUMENT if the state does not fit.
  Status RestoreCompressor(std::string_view rest,
                           const std::vector<std::span<const float>>& residuals);
  // Reports the hash of the parameters after `step`. If ranks report different hashes for a step,
  // the job ends with an error.
  void ReportParameters(uint64_t step, std::string_view sha256);

  // Returns whether followers want this process's parameters after `step` (docs/followers.md), in a
  // job whose shards keep no parameters. Ask after each step, once the optimizer has made its step,
  // and with `is_last` before Leave. True only on rank 0, and only while a follower is connected.
  bool WantsWeights(uint64_t step, bool is_last) const;
  // Gives followers the parameters after `step`, with one span per trained tensor in storage order.
  // Copies them before it returns. Fails with INVALID_ARGUMENT, without ending the session, if the
  // number or a size of the spans is wrong.
  Status PublishWeights(uint64_t step, const std::vector<std::span<const float>>& parameters,
                        bool is_last);
  // Leaves the job after the last step.
  Status Leave();
  // Leaves the job before its end and gives the coordinator the reason. A Join, WaitFor or Leave
  // that is waiting on another thread ends with CANCELLED. Thread-safe.
  void Abandon(std::string_view reason);
  // Thread-safe.
  Figures figures() const;
  const JobSummary& job() const;

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace sluice::client
