// Training state as bytes: all that a run needs to go on from after a step, bit for bit, in a
// process of its own: parameters (fp32 whatever the job computes in) and their average, buffers,
// the optimizer's memory, the loss scale, LibTorch's random numbers, and how far the run was.
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

// How far a run is, and what its report adds up.
struct TrainingCursor {
  uint64_t step = 0;   // Finished ones.
  uint64_t epoch = 0;  // Finished ones; one that has all its steps counts once it is evaluated.
  // Where the deal that the epoch goes by began: in another than the first of a run with other
  // ranks, within the epoch (shard_sampler.h).
  uint32_t ranks = 1;
  std::vector<uint32_t> members{};  // Which, where workers come and go.
  uint64_t deal_step = 0;           // Finished ones then.
  uint64_t deal_offset = 0;         // In the epoch's deck.
  uint64_t samples = 0;
  uint64_t skipped = 0;
  uint32_t skipped_in_a_row = 0;
  double last_loss = 0;
  double epoch_loss_sum = 0;  // Of the epoch's steps so far.
  uint64_t epoch_loss_count = 0;
  std::optional<Evaluation> evaluation{};  // The last.
  TrafficCounters traffic{};               // Of the steps that are done; not of work that was lost.
  std::optional<BestTest> best{};          // So far.
  double wall_seconds = 0;                 // Of training, as traffic is.
};

// What trains, and is saved and restored in place.
struct TrainedState {
  NamedTensors model;                            // Parameters and buffers.
  torch::optim::Optimizer* optimizer = nullptr;  // Null: the job's is on the shards.
  LossScale* loss_scale = nullptr;               // Null: the job has none.
  Ema* ema = nullptr;                            // Null: the job has none.
  std::vector<at::Device> copies_on{};           // Devices besides the model's that draw numbers.
};

std::string SaveTrainingState(const TrainedState& trained, const TrainingCursor& cursor);

// INVALID_ARGUMENT, naming it: a parameter or buffer that one of them lacks, or of another shape or
// type; or `bytes` are of another version. What is not bytes of SaveTrainingState throws, as
// LibTorch does. On an error what `trained` shows is not to be used. A loss scale that was not
// saved begins anew, and so does an average, from the parameters.
absl::Status RestoreTrainingState(absl::string_view bytes, const TrainedState& trained,
                                  TrainingCursor* cursor);

}  // namespace sluice::worker
