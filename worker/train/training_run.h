// SPDX-License-Identifier: Apache-2.0
// TrainingRun: one run of a rank, from data to trained parameters. It defines the order of the
// work.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/log.h"
#include "worker/core/session.h"
#include "worker/data/batch_stream.h"
#include "worker/data/dataset.h"
#include "worker/data/source/shard_sampler.h"
#include "worker/train/model_trainer.h"
#include "worker/train/rounds.h"
#include "worker/train/train.h"
#include "worker/train/training_results.h"
#include "worker/train/training_state.h"

namespace sluice::job {
struct JobSpec;
}  // namespace sluice::job

namespace sluice::worker {

struct TrainingData {
  Datasets sets;  // No test data on ranks that do not evaluate.
};

// Call each method once, in declaration order; stop at the first error.
class TrainingRun {
 public:
  TrainingRun(const job::JobSpec& spec, uint32_t rank, const TrainOptions& options,
              const Logger& logger)
      : spec_(spec),
        rank_(rank),
        options_(options),
        logger_(logger),
        rounds_(spec),
        results_(&spec, rank, &options, &logger) {}

  absl::Status Prepare();
  absl::Status Join(JobClient* client);
  // Restores the checkpoint that the join named.
  absl::Status Restore();
  absl::Status Train();
  absl::StatusOr<TrainReport> Finish();

 private:
  absl::Status SaveTrained(const std::string& path);
  ShardSamplerOptions SamplerOptions() const;
  BatchStreamOptions StreamOptions(uint64_t steps) const;
  uint64_t TotalSteps() const;
  void RestoreDeal(const TrainingCursor& cursor);
  // Sets the ranks that get samples from the next step on. They share the rest of the epoch's deck.
  void DealTo(std::vector<uint32_t> members);
  absl::Status TrainEpoch();
  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }
  absl::Status TrainStep(BatchStream* batches, uint64_t step_of_deal);
  absl::Status CloseExchanges();
  absl::Status EndExchange(const TrainerStep& done);
  void SetWork();
  void MeasureStep(absl::Duration took);
  void SetShardRate(double rate);
  void FallBehind(const TrainerStep& done);
  void ReportParameters(const std::string& sha256);
  absl::Status SaveCheckpoint();
  // Returns the rank that tests the model and writes files for people.
  uint32_t FirstMember() const;
  absl::Status EvaluateNow();
  void AdoptBest();
  uint64_t BreaksLeft() const;
  std::string BestPath() const;
  // Decides whether an existing best.pt counts for a run that continues.
  void RestoreBest(TrainingCursor* cursor) const;
  void KeepIfBest(const Evaluation& evaluation);

  const job::JobSpec& spec_;
  const uint32_t rank_;
  const TrainOptions& options_;
  const Logger& logger_;
  const SteadyClock clock_;
  const Rounds rounds_;

  std::shared_ptr<const TrainingData> data_;
  Session* session_ = nullptr;  // Null before Join.
  JoinInfo joined_;
  std::unique_ptr<ModelTrainer> trainer_;
  std::shared_ptr<const ShardSampler> sampler_;  // Sampler of the current deal.
  TrainingResults results_;
  uint64_t total_steps_ = 0;
  std::vector<uint32_t> members_;  // Ranks that get samples, in ascending order.

  uint64_t step_ = 0;         // Finished steps.
  uint64_t exchange_ = 0;     // Finished exchanges.
  absl::Duration step_time_;  // Moving mean over steps that wait for no exchange.
  uint64_t epoch_ = 0;
  // Start of this epoch's current deal, in finished steps and in cards of the deck.
  uint64_t deal_step_ = 0;
  uint64_t deal_offset_ = 0;
  // Number of upcoming exchanges that the other ranks have closed without this rank.
  uint64_t exchanges_behind_ = 0;
  bool told_behind_ = false;
  bool others_tested_ = false;  // Another rank has tested since this one did.
};

}  // namespace sluice::worker
