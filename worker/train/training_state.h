// SPDX-License-Identifier: Apache-2.0
// Training state as bytes: everything that a run needs in order to continue after a step, bit for
// bit, in a new process. This includes parameters (fp32 in any precision of the job) and their
// average, buffers, the optimizer's state, the loss scale, LibTorch's random number generators, and
// the position of the run.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/core/session.h"
#include "worker/torch/named_tensors.h"
#include "worker/train/best_test.h"
#include "worker/train/ema.h"
#include "worker/train/evaluation.h"
#include "worker/train/loss_scale.h"

namespace sluice::worker {

// Position of a run and the sums for its report.
struct TrainingCursor {
  uint64_t step = 0;   // Finished steps.
  uint64_t epoch = 0;  // Finished epochs. An epoch counts once it has been evaluated.
  // Start of the epoch's current deal. The deal begins within the epoch if the ranks changed during
  // the epoch (shard_sampler.h).
  uint32_t ranks = 1;
  std::vector<uint32_t> members{};  // The ranks, with elastic membership.
  uint64_t deal_step = 0;           // Finished steps at the start of the deal.
  uint64_t deal_offset = 0;         // Position in the epoch's deck.
  uint64_t samples = 0;
  uint64_t skipped = 0;
  uint32_t skipped_in_a_row = 0;
  // In jobs that stream fragments: the rank whose state this is, and its exchanges since its last
  // step of its own.
  uint32_t rank = 0;
  uint64_t idle_exchanges = 0;
  double last_loss = 0;
  double epoch_loss_sum = 0;  // Sum over the epoch's steps so far.
  uint64_t epoch_loss_count = 0;
  std::optional<Evaluation> evaluation{};  // The last evaluation.
  TrafficCounters traffic{};               // Traffic of finished steps, without lost work.
  std::optional<BestTest> best{};          // The best test so far.
  double wall_seconds = 0;                 // Time of training, without lost work.
};

// Objects that are saved, and restored in place.
struct TrainedState {
  NamedTensors model;                            // Parameters and buffers.
  torch::optim::Optimizer* optimizer = nullptr;  // Null if the shards have the optimizer.
  LossScale* loss_scale = nullptr;               // Null if the job has none.
  Ema* ema = nullptr;                            // Null if the job has none.
  // The parameters that all ranks share, if they differ from those of the model; otherwise empty.
  std::vector<at::Tensor> published{};
  std::vector<at::Device> copies_on{};  // Other devices whose random number generators are saved.
};

std::string SaveTrainingState(const TrainedState& trained, const TrainingCursor& cursor);

// Fails with INVALID_ARGUMENT, and names the cause, if a parameter or buffer is missing on either
// side or has another shape or type, or if `bytes` have another version. Throws LibTorch's
// exceptions for bytes that SaveTrainingState did not write. After an error the objects of
// `trained` must not be used. A loss scale that was not saved starts at its initial value, and an
// average that was not saved starts at the parameters.
absl::Status RestoreTrainingState(absl::string_view bytes, const TrainedState& trained,
                                  TrainingCursor* cursor);

}  // namespace sluice::worker
