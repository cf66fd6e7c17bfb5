// SPDX-License-Identifier: Apache-2.0
// Tests racks of real sessions behind real relays and servers. The results must equal those of a
// job without relays.
#include "tests/relay/relay_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace sluice::relay {
namespace {

using ::testing::HasSubstr;

class RelayJobTest : public RelayJob {
 protected:
  Model RunFlat() {
    const job::RelaysSpec relays = std::exchange(job_.relays, job::RelaysSpec());
    const std::vector<Model> ended = Run();
    job_.relays = relays;
    EXPECT_EQ(failure(), absl::OkStatus());
    return ended[0];
  }
  // Runs the job and expects equal parameters, bit for bit, on all ranks. Statistics are not
  // compared, because each rank has its own between averaging steps.
  Model RunRacks() {
    const std::vector<Model> ended = Run();
    EXPECT_EQ(failure(), absl::OkStatus());
    for (const Model& other : ended) EXPECT_EQ(other.parameters, ended[0].parameters);
    for (const auto& outcome : ended_) {
      EXPECT_TRUE(outcome.has_value() && outcome->ok());
    }
    return ended[0];
  }
  static void ExpectNear(const Model& racks, const Model& flat, float tolerance) {
    for (size_t i = 0; i < flat.parameters.size(); ++i) {
      ASSERT_NEAR(racks.parameters[i], flat.parameters[i], tolerance) << i;
    }
    for (size_t i = 0; i < kStatistics; ++i) {
      ASSERT_NEAR(racks.statistics[i], flat.statistics[i], tolerance) << i;
    }
  }
};

TEST_F(RelayJobTest, LosslessIsAsWithoutRelaysToRounding) {
  ExpectNear(RunRacks(), RunFlat(), 1e-5f);
}

TEST_F(RelayJobTest, RacksOfUnequalSizeWeighAsTheirWorkers) {
  job_.relays.workers = {3, 1};
  ExpectNear(RunRacks(), RunFlat(), 1e-5f);
}

TEST_F(RelayJobTest, UpdatesOnTheShardsAreAsWithoutRelaysToRounding) {
  job_.relays.workers = {3, 1};
  job_.optimizer = {
      .name = "sgd", .lr = kRate, .momentum = 0.5, .location = job::UpdateLocation::kShards};
  ExpectNear(RunRacks(), RunFlat(), 1e-4f);
}

TEST_F(RelayJobTest, LocalStepsAreAsWithoutRelaysToRounding) {
  job_.relays.workers = {3, 1};
  job_.exchange.mode = job::Mode::kLocalSgd;
  job_.local = {.steps = 2, .outer_lr = 0.7, .outer_momentum = 0.5};
  ExpectNear(RunRacks(), RunFlat(), 1e-4f);
}

// More shards than chunks: the relays forward nothing for the shards without chunks.
TEST_F(RelayJobTest, ShardsWithoutChunksTakePart) {
  job_.shards = 9;
  ExpectNear(RunRacks(), RunFlat(), 1e-5f);
}

TEST_F(RelayJobTest, WhoSkipsOrIsNotFiniteIsInNoMean) {
  skips_ = [](uint32_t rank, uint64_t step) {
    return (rank == 1 && step % 3 == 0) ||  // One rank of a rack skips.
           (rank >= 2 && step % 5 == 0) ||  // A whole rack skips.
           step % 11 == 0;                  // All ranks skip.
  };
  change_ = [](uint32_t rank, uint64_t step, std::vector<float>* gradient) {
    // One bundle of one worker is not finite. The rest of its gradient must count.
    if (rank == 3 && step % 4 == 0) gradient->back() = std::numeric_limits<float>::quiet_NaN();
  };
  std::atomic<uint32_t> empty = 0;
  std::atomic<uint32_t> uneven = 0;
  after_step_ = [&](uint32_t, const worker::StepResult& result) {
    if (result.n_max == 0) ++empty;
    if (result.n_min != result.n_max) ++uneven;
  };
  const Model racks = RunRacks();
  EXPECT_EQ(empty, 4 * (steps_ / 11));
  EXPECT_GT(uneven, 0u);
  ExpectNear(racks, RunFlat(), 1e-5f);
}

TEST_F(RelayJobTest, ContributionsAreThoseOfAllRacks) {
  job_.relays.workers = {3, 1};
  std::atomic<uint32_t> wrong = 0;
  after_step_ = [&](uint32_t, const worker::StepResult& result) {
    if (result.n_min != 4 || result.n_max != 4) ++wrong;
  };
  RunRacks();
  EXPECT_EQ(wrong, 0u);
}

// Plans of the parent job must change the momentum of all workers in the same step as without
// relays. They must not change the codecs inside racks.
TEST_F(RelayJobTest, WorkersOfRacksFollowThePlans) {
  job_.exchange.compression.uplink = *compress::ParseCodecSpec("topk:5%+int4/ef");
  job_.optimizer = {.name = "sgd", .lr = kRate, .momentum = 0.9};
  job_.exchange.control.policy = job::PolicyKind::kSchedule;
  job_.exchange.control.schedule = {.kind = job::ScheduleKind::kExponential,
                                    .dense_steps = 4,
                                    .start = 0.5,
                                    .end = 0.05,
                                    .steps = 12,
                                    .stages = 3};
  using PlanFacts = std::tuple<uint64_t, uint64_t, std::optional<float>>;
  using PlansByStep = std::map<uint64_t, std::set<PlanFacts>>;
  Mutex mutex;
  PlansByStep plans;
  bool in_racks = true;
  after_step_ = [&](uint32_t, const worker::StepResult& result) {
    MutexLock lock(&mutex);
    if (result.plan == nullptr) return;
    const protocol::CompressionPlan& plan = *result.plan;
    plans[result.step].insert({plan.id, plan.effective_step, plan.momentum});
    if (in_racks && !plan.entries.empty()) ADD_FAILURE() << "plan " << plan.id << " has codecs";
  };
  RunRacks();
  const PlansByStep of_racks = std::exchange(plans, PlansByStep());
  in_racks = false;
  RunFlat();
  EXPECT_EQ(of_racks, plans);
  ASSERT_EQ(plans.size(), steps_);
  EXPECT_EQ(std::get<0>(*plans[1].begin()), 1u);
  EXPECT_EQ(std::get<0>(*plans[steps_].begin()), 5u);  // The dense steps, three stages, the end.
  EXPECT_NE(std::get<2>(*plans[1].begin()), std::get<2>(*plans[steps_].begin()));
}

// The workers of a rack take each step together even if the relays do not wait for each other. A
// job with one relay therefore computes the same as a job in mode `sync`.
TEST_F(RelayJobTest, OneRackInAsyncEndsAsInSyncToRounding) {
  job_.relays.workers = {4};
  job_.optimizer = {
      .name = "sgd", .lr = kRate, .momentum = 0.5, .location = job::UpdateLocation::kShards};
  const Model sync = RunFlat();
  for (const job::Mode mode : {job::Mode::kAsync, job::Mode::kSsp}) {
    job_.exchange.mode = mode;
    const Model racks = RunRacks();
    for (size_t i = 0; i < sync.parameters.size(); ++i) {
      ASSERT_NEAR(racks.parameters[i], sync.parameters[i], 1e-4f) << NameOf(mode) << i;
    }
  }
}

TEST_F(RelayJobTest, RacksDoNotWaitForEachOtherInAsync) {
  job_.relays.workers = {3, 1};
  job_.exchange.mode = job::Mode::kAsync;
  job_.optimizer = {.name = "sgd", .lr = kRate, .location = job::UpdateLocation::kShards};
  std::atomic<uint64_t> step_of_rack_0 = 0;
  after_step_ = [&](uint32_t rank, const worker::StepResult& result) {
    if (rank == 0) step_of_rack_0 = result.step;
  };
  change_ = [&](uint32_t rank, uint64_t step, std::vector<float>*) {
    if (rank == 3 && step == 5) AwaitThat([&] { return step_of_rack_0 == steps_; });
  };
  const std::vector<Model> ended = Run();
  EXPECT_EQ(failure(), absl::OkStatus());
  // The workers of a rack have equal parameters. The slow rack has also applied its own last steps.
  EXPECT_EQ(ended[1].parameters, ended[0].parameters);
  EXPECT_EQ(ended[2].parameters, ended[0].parameters);
  EXPECT_NE(ended[3].parameters, ended[0].parameters);
  double sum = 0;
  for (const float value : ended[3].parameters) sum += value;
  EXPECT_LT(sum / static_cast<double>(kWeights + kBiases), 0.9);  // It began with 1.
}

// Values that any compression leaves out must arrive later. After some steps with zero gradients,
// all submitted values must have been applied.
TEST_F(RelayJobTest, NothingIsLostInTwoLevelsOfCompression) {
  job_.relays.uplink = *compress::ParseCodecSpec("topk:20%/ef");
  job_.exchange.compression.uplink = *compress::ParseCodecSpec("topk:10%+int4/ef");
  steps_ = 80;
  std::vector<double> submitted(kWeights + kBiases, 0.0);
  Mutex mutex;
  change_ = [&](uint32_t rank, uint64_t step, std::vector<float>* gradient) {
    CounterRandom random(rank, step, 5);
    for (float& value : *gradient) {
      value = step > 10 ? 0.0f : static_cast<float>(random.Uniform() - 0.5);
    }
    MutexLock lock(&mutex);
    for (size_t i = 0; i < submitted.size(); ++i) submitted[i] += (*gradient)[i] / 4.0;
  };
  const Model ended = RunRacks();
  double owed = 0;
  double all = 0;
  for (size_t i = 0; i < submitted.size(); ++i) {
    // All ranks began with rank 0's parameters, which are 1.
    const double applied = (1.0 - ended.parameters[i]) / 0.05;
    owed += std::abs(applied - submitted[i]);
    all += std::abs(submitted[i]);
  }
  EXPECT_LT(owed, 1e-3 * all);
}

TEST_F(RelayJobTest, AWorkerThatGivesUpEndsAllOfItWithItsReason) {
  steps_ = 1'000'000;
  Start();
  std::vector<std::thread> workers;
  std::vector<absl::Status> ended(job_.workers);
  for (uint32_t rank = 0; rank < job_.workers; ++rank) {
    workers.emplace_back([&, rank] {
      const std::unique_ptr<worker::JobClient> client = MakeClient(rank, false);
      std::thread quitter;
      if (rank == 3) {
        quitter = std::thread([&] {
          AwaitThat([&] {
            const auto figures = client->figures();
            return figures.has_value() && figures->traffic.steps >= 5;
          });
          client->Abandon("the data is gone");
        });
      }
      Model model;
      ended[rank] = TrainOn(client.get(), rank, &model);
      if (quitter.joinable()) quitter.join();
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (const uint32_t rank : {0u, 1u, 2u}) {
    EXPECT_THAT(std::string(ended[rank].message()), HasSubstr("the data is gone")) << rank;
  }
  Stop();
  for (const auto& outcome : ended_) {
    ASSERT_TRUE(outcome.has_value());
    EXPECT_THAT(std::string(outcome->message()), HasSubstr("the data is gone"));
  }
}

// A step is so long that the rack gives the relay no reason to contact the parent job. The rack
// must still learn in the middle of the step that the parent job has ended.
TEST_F(RelayJobTest, TheEndAboveIsToldToARackInTheMiddleOfAStep) {
  steps_ = 1'000'000;
  Start();
  std::atomic<bool> stands = false;
  std::atomic<bool> told = false;
  change_ = [&](uint32_t rank, uint64_t step, std::vector<float>*) {
    if (rank != 0 || step != 5) return;
    stands = true;
    // This worker continues only after the rack has learned of the end.
    const absl::Time until = clock_.Now() + absl::Seconds(60);
    AwaitThat([&] {
      MutexLock lock(&mutex_);
      told = relays_[0]->rack().Status()->phase == protocol::JobPhase::kFailed;
      return told || clock_.Now() > until;
    });
  };
  std::vector<std::thread> workers;
  std::vector<absl::Status> ended(job_.workers);
  for (uint32_t rank = 0; rank < job_.workers; ++rank) {
    workers.emplace_back([&, rank] {
      const std::unique_ptr<worker::JobClient> client = MakeClient(rank, false);
      std::thread quitter;
      if (rank == 3) {
        quitter = std::thread([&] {
          AwaitThat([&] { return stands.load(); });
          client->Abandon("the data is gone");
        });
      }
      Model model;
      ended[rank] = TrainOn(client.get(), rank, &model);
      if (quitter.joinable()) quitter.join();
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_TRUE(told);
  for (const uint32_t rank : {0u, 1u, 2u}) {
    EXPECT_THAT(std::string(ended[rank].message()), HasSubstr("the data is gone")) << rank;
  }
  Stop();
}

TEST_F(RelayJobTest, ARelayThatIsLostEndsAJobWithoutCheckpointsByName) {
  job_.server.lease_timeout = absl::Seconds(10);  // Only a lost process is silent for this long.
  job_.server.connect_timeout = absl::Seconds(1);
  steps_ = 1'000'000;
  std::atomic<bool> lost = false;
  std::atomic<bool> over = false;
  Start();
  after_step_ = [&](uint32_t rank, const worker::StepResult& result) {
    if (rank == 0 && result.step == 5) lost = true;
  };
  std::thread loser([&] {
    AwaitThat([&] { return lost || over; });
    LoseRelay(1);
  });
  std::vector<std::thread> workers;
  std::vector<absl::Status> ended(job_.workers);
  for (uint32_t rank = 0; rank < job_.workers; ++rank) {
    workers.emplace_back([&, rank] {
      const std::unique_ptr<worker::JobClient> client = MakeClient(rank, false);
      Model model;
      ended[rank] = TrainOn(client.get(), rank, &model);
    });
  }
  for (std::thread& worker : workers) worker.join();
  over = true;
  loser.join();
  for (const uint32_t rank : {0u, 1u}) {
    EXPECT_THAT(std::string(ended[rank].message()), HasSubstr("relay 1 (")) << rank;
  }
  for (const uint32_t rank : {2u, 3u}) EXPECT_FALSE(ended[rank].ok());
  Stop();
}

}  // namespace
}  // namespace sluice::relay
