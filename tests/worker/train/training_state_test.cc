// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "absl/strings/str_cat.h"
#include "worker/train/optimizers.h"

namespace sluice::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A model with all kinds of state that a step can change besides parameters.
torch::nn::Sequential Model(int64_t hidden = 16) {
  torch::manual_seed(3);
  torch::nn::Sequential model;
  model->push_back("fc1", torch::nn::Linear(8, hidden));
  model->push_back("norm", torch::nn::BatchNorm1d(hidden));
  model->push_back("drop", torch::nn::Dropout(0.3));
  model->push_back("fc2", torch::nn::Linear(hidden, 1));
  return model;
}

struct Trained {
  TrainedState State() { return {.model = TensorsOf(*model), .optimizer = optimizer.get()}; }

  torch::nn::Sequential model = nullptr;
  std::unique_ptr<torch::optim::Optimizer> optimizer;

  explicit Trained(const job::OptimizerSpec& spec)
      : model(Model()), optimizer(*MakeOptimizer(spec, model->parameters(), {0})) {}

  void Step(int step) {
    SetLearningRate(optimizer.get(), 0.05 / step);
    optimizer->zero_grad();
    const at::Tensor inputs = torch::randn({4, 8});
    torch::mse_loss(model->forward(inputs), inputs.sum(1, true)).backward();
    optimizer->step();
  }
};

std::vector<at::Tensor> Everything(const torch::nn::Sequential& model) {
  std::vector<at::Tensor> all = model->parameters();
  for (const at::Tensor& buffer : model->buffers()) all.push_back(buffer);
  return all;
}

class TrainingStateTest : public ::testing::TestWithParam<job::OptimizerSpec> {};

TEST_P(TrainingStateTest, GoesOnBitForBit) {
  Trained undisturbed(GetParam());
  std::string saved;
  for (int step = 1; step <= 8; ++step) {
    undisturbed.Step(step);
    if (step == 5) {
      saved = SaveTrainingState(undisturbed.State(), {.step = 5, .epoch_loss_sum = 0.1});
    }
  }
  Trained restored(GetParam());
  TrainingCursor cursor;
  const absl::Status status = RestoreTrainingState(saved, restored.State(), &cursor);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(cursor.step, 5u);
  EXPECT_EQ(cursor.epoch_loss_sum, 0.1);
  for (int step = 6; step <= 8; ++step) restored.Step(step);
  const std::vector<at::Tensor> want = Everything(undisturbed.model);
  const std::vector<at::Tensor> got = Everything(restored.model);
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(want[i], got[i])) << i;
}

job::OptimizerSpec Spec(const char* name, double momentum = 0, bool nesterov = false) {
  job::OptimizerSpec spec;
  spec.name = name;
  spec.momentum = momentum;
  spec.nesterov = nesterov;
  spec.weight_decay = 0.01;
  return spec;
}

INSTANTIATE_TEST_SUITE_P(All, TrainingStateTest,
                         ::testing::Values(Spec("sgd"), Spec("sgd", 0.9), Spec("sgd", 0.9, true),
                                           Spec("adam"), Spec("adamw"), Spec("muon"),
                                           Spec("rmsprop"), Spec("rmsprop", 0.9)),
                         [](const ::testing::TestParamInfo<job::OptimizerSpec>& c) {
                           return absl::StrCat(c.param.name, c.index);
                         });

TEST(TrainingStateErrorsTest, AllOfTheCursorComesBack) {
  Trained run(Spec("sgd"));
  const TrainingCursor cursor = {.step = 1,
                                 .epoch = 2,
                                 .samples = 3,
                                 .skipped = 4,
                                 .skipped_in_a_row = 5,
                                 .last_loss = 0.6,
                                 .epoch_loss_sum = 0.7,
                                 .epoch_loss_count = 8,
                                 .evaluation = Evaluation{.loss = 1.1, .accuracy = 0.9},
                                 .traffic = {.bytes_up = 12,
                                             .bytes_down = 13,
                                             .steps = 14,
                                             .encode_seconds = 1.5,
                                             .decode_seconds = 1.6,
                                             .exposed_seconds = 1.7}};
  TrainingCursor read;
  ASSERT_TRUE(
      RestoreTrainingState(SaveTrainingState(run.State(), cursor), run.State(), &read).ok());
  EXPECT_EQ(read.step, 1u);
  EXPECT_EQ(read.epoch, 2u);
  EXPECT_EQ(read.samples, 3u);
  EXPECT_EQ(read.skipped, 4u);
  EXPECT_EQ(read.skipped_in_a_row, 5u);
  EXPECT_EQ(read.last_loss, 0.6);
  EXPECT_EQ(read.epoch_loss_sum, 0.7);
  EXPECT_EQ(read.epoch_loss_count, 8u);
  ASSERT_TRUE(read.evaluation.has_value());
  EXPECT_EQ(read.evaluation->accuracy, 0.9);
  EXPECT_EQ(read.evaluation->loss, 1.1);
  EXPECT_EQ(read.traffic.bytes_up, 12u);
  EXPECT_EQ(read.traffic.bytes_down, 13u);
  EXPECT_EQ(read.traffic.steps, 14u);
  EXPECT_EQ(read.traffic.encode_seconds, 1.5);
  EXPECT_EQ(read.traffic.decode_seconds, 1.6);
  EXPECT_EQ(read.traffic.exposed_seconds, 1.7);
}

TEST(TrainingStatePartsTest, LossScaleAndAverageComeBack) {
  Trained run(Spec("sgd"));
  LossScale scale;
  for (int i = 0; i < 3; ++i) scale.Update(/*overflowed=*/true);
  scale.Update(false);
  Ema ema(0.9, run.model->parameters());
  run.Step(1);
  ema.Update();
  TrainedState state = run.State();
  state.loss_scale = &scale;
  state.ema = &ema;
  const std::string saved = SaveTrainingState(state, {});

  Trained other(Spec("sgd"));
  LossScale read_scale;
  Ema read_ema(0.9, other.model->parameters());
  TrainedState read = other.State();
  read.loss_scale = &read_scale;
  read.ema = &read_ema;
  TrainingCursor cursor;
  const absl::Status status = RestoreTrainingState(saved, read, &cursor);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(read_scale.value(), 8192);
  EXPECT_EQ(read_scale.good_steps(), 1u);
  EXPECT_EQ(read_ema.updates(), 1u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(torch::equal(read_ema.averages()[i], ema.averages()[i])) << i;
  }
  // A job without a loss scale and an average must ignore the saved ones.
  EXPECT_TRUE(RestoreTrainingState(saved, other.State(), &cursor).ok());
  // A job with them must accept a state without them. Its average then begins with the parameters.
  EXPECT_TRUE(RestoreTrainingState(SaveTrainingState(run.State(), {}), read, &cursor).ok());
  EXPECT_EQ(read_ema.updates(), 0u);
  EXPECT_TRUE(torch::equal(read_ema.averages()[0], run.model->parameters()[0]));
  // An average of another model must be refused.
  Ema smaller(0.9, {torch::zeros({2})});
  read.ema = &smaller;
  EXPECT_THAT(RestoreTrainingState(saved, read, &cursor).message(), HasSubstr("averages 6"));
}

TEST(TrainingStateErrorsTest, AnotherModelIsNamed) {
  Trained run(Spec("sgd"));
  const std::string saved = SaveTrainingState(run.State(), {});
  TrainingCursor cursor;
  const auto restore_into = [&](torch::nn::Sequential model) {
    const auto optimizer = *MakeOptimizer(Spec("sgd"), model->parameters());
    return std::string(
        RestoreTrainingState(saved, {.model = TensorsOf(*model), .optimizer = optimizer.get()},
                             &cursor)
            .message());
  };
  EXPECT_THAT(restore_into(Model(/*hidden=*/17)),
              AllOf(HasSubstr("fc1.weight is [16, 8]"), HasSubstr("and [17, 8]")));
  torch::nn::Sequential larger = Model();
  larger->push_back("fc3", torch::nn::Linear(1, 1));
  EXPECT_THAT(restore_into(larger), HasSubstr("has no fc3.weight"));
  torch::nn::Sequential smaller;
  smaller->push_back("fc1", torch::nn::Linear(8, 16));
  EXPECT_THAT(restore_into(smaller), HasSubstr("9 parameters and buffers, the model 2"));
}

}  // namespace
}  // namespace sluice::worker
