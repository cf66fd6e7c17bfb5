// SPDX-License-Identifier: Apache-2.0
// Tests means, wrong results, results of a job with a quorum, and equal bytes after a restore from
// a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/worker/core/pipeline_fixture.h"
#include "tests/worker/core/read_results.h"

namespace sluice::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST_F(PipelineTest, ATensorIsReadyWhenItsResultsHaveArrived) {
  Make("none");
  StartWhole();
  const auto sends = TakeSends();
  EXPECT_THAT(pipeline_->TakeReady(), IsEmpty());
  EXPECT_FALSE(pipeline_->IsReady(2));
  pipeline_->Answer(0, ResultOf(*sends[0]), &effects_);
  EXPECT_TRUE(pipeline_->step_open());
  EXPECT_TRUE(pipeline_->IsReady(2));
  EXPECT_FALSE(pipeline_->IsReady(1));
  EXPECT_FALSE(pipeline_->IsReady(3));
  EXPECT_THAT(pipeline_->TakeReady(), ElementsAre(ReadyTensor{.tensor = 2}));
  EXPECT_THAT(pipeline_->TakeReady(), IsEmpty());
  std::vector<float> mean(kSize, 9.0f);
  ASSERT_TRUE(ReadMean(*pipeline_, 2, absl::MakeSpan(mean)).ok());
  EXPECT_EQ(mean, gradients_[2]);
  AnswerAll(sends);
  EXPECT_FALSE(pipeline_->step_open());
  EXPECT_THAT(pipeline_->TakeReady(),
              UnorderedElementsAre(ReadyTensor{.tensor = 1}, ReadyTensor{.tensor = 0}));
  // What a step leaves is not part of the next one.
  FinishStep();
  gradients_[1][5] = std::numeric_limits<float>::quiet_NaN();
  StartWhole();
  EXPECT_THAT(pipeline_->TakeReady(), IsEmpty());
  AnswerAll(TakeSends());
  EXPECT_THAT(pipeline_->TakeReady(),
              UnorderedElementsAre(ReadyTensor{.tensor = 2}, ReadyTensor{.tensor = 0},
                                   ReadyTensor{.tensor = 1, .has_mean = false}));
}

TEST_F(PipelineTest, MeansAreAddedToWhatIsThere) {
  for (const char* spec : {"none", "topk:20%"}) {
    SCOPED_TRACE(spec);
    Make(spec);
    FinishStep();
    for (uint32_t tensor = 0; tensor < 3; ++tensor) {
      std::vector<float> mean(kSize), values(kSize, 9.0f), expected(kSize, 9.0f);
      ASSERT_TRUE(ReadMean(*pipeline_, tensor, absl::MakeSpan(mean)).ok());
      for (size_t i = 0; i < kSize; ++i) {
        const float scaled = -0.3f * mean[i];
        expected[i] += scaled;
      }
      const auto parts = pipeline_->Parts(tensor, kSize, ResultUse::kAddend);
      ASSERT_TRUE(parts.ok());
      AddParts(*parts, -0.3f, absl::MakeSpan(values));
      EXPECT_EQ(values, expected) << tensor;
    }
    EXPECT_EQ(pipeline_->Parts(0, kSize + 1, ResultUse::kAddend).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

class CheckpointedCodecTest : public PipelineTest, public testing::WithParamInterface<const char*> {
 protected:
  // Returns the frames of the next `steps` steps.
  std::vector<std::string> Frames(int steps) {
    std::vector<std::string> frames;
    for (int i = 0; i < steps; ++i) {
      // Gradients grow, so that a step's published result affects the next step.
      for (std::vector<float>& gradient : gradients_) {
        for (size_t at = 0; at < kSize; ++at) {
          gradient[at] = std::ldexp(static_cast<float>(at) - 20.5f,
                                    3 * static_cast<int>(pipeline_->next_step()));
        }
      }
      StartWhole();
      const auto sends = TakeSends();
      for (const auto& exchange : sends) {
        frames.insert(frames.end(), exchange->frames.begin(), exchange->frames.end());
      }
      AnswerAll(sends);
      effects_.clear();
    }
    return frames;
  }
};

// A checkpoint is taken after step 2. A restored run must continue with the same bytes as a run
// without an interruption.
TEST_P(CheckpointedCodecTest, GoesOnWithTheSameBytes) {
  Make(GetParam());
  (void)Frames(2);
  const std::vector<std::string> plain = Frames(3);

  Make(GetParam());
  (void)Frames(2);
  for (const Published& bundle : pipeline_->TakePublished()) {
    encoder_->Observe(bundle.chunks, bundle.frames);
  }
  const compress::SavedCompressor saved = encoder_->Save();
  const std::vector<std::string> undisturbed = Frames(3);

  Make(GetParam(), 1 << 20, 1, true, /*first_step=*/3);
  ASSERT_TRUE(encoder_->Restore(saved).ok());
  EXPECT_EQ(Frames(3), undisturbed);
  EXPECT_EQ(undisturbed, plain);
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointedCodecTest,
                         testing::Values("none", "topk:5%", "intsum:8", "intsum:2", "topk:10%/ef21",
                                         "qsgd:4/diana"),
                         [](const testing::TestParamInfo<const char*>& c) {
                           return absl::StrCat("Spec", c.index);
                         });

struct WrongResult {
  const char* name;
  const char* says;
  std::function<void(protocol::ExchangeReply*)> change;
};

class WrongResultTest : public PipelineTest, public testing::WithParamInterface<WrongResult> {};

TEST_P(WrongResultTest, IsAnErrorThatSaysWhat) {
  Make("none", 1 << 20, /*world_size=*/2);
  StartWhole();
  protocol::ExchangeReply answer = ResultOf(*TakeSends()[1]);
  answer.record.included.push_back({.rank = 1, .origin_step = 1, .checksum = 5, .skipped = true});
  GetParam().change(&answer);
  pipeline_->Answer(0, answer, &effects_);
  ASSERT_EQ(Count<PipelineFailed>(), 1);
  const std::string message(pipeline_->status().message());
  EXPECT_THAT(message,
              AllOf(HasSubstr("wrong result for bundle 1"), HasSubstr("shard 0 at step 1")));
  EXPECT_THAT(message, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongResultTest,
    testing::Values(
        WrongResult{"ResultChecksum", "its record says",
                    [](protocol::ExchangeReply* a) { a->record.result_checksum ^= 1; }},
        WrongResult{"Bit", "frame 0, for b",
                    [](protocol::ExchangeReply* a) { a->results[0][40] ^= 4; }},
        WrongResult{"FrameMissing", "0 frames",
                    [](protocol::ExchangeReply* a) { a->results.clear(); }},
        WrongResult{"Divisor", "divides by 2", [](protocol::ExchangeReply* a) { a->record.n = 2; }},
        WrongResult{"OtherStep", "at step 9",
                    [](protocol::ExchangeReply* a) { a->record.step = 9; }},
        WrongResult{"OtherBundle", "of bundle 0",
                    [](protocol::ExchangeReply* a) { a->record.bundle = 0; }},
        WrongResult{"OtherTerm", "term 4", [](protocol::ExchangeReply* a) { a->record.term = 4; }},
        WrongResult{"NotOurBytes", "this worker sent",
                    [](protocol::ExchangeReply* a) { a->record.included[0].checksum ^= 1; }},
        WrongResult{"WithoutUs", "leaves rank 0 out",
                    [](protocol::ExchangeReply* a) {
                      a->record.included.erase(a->record.included.begin());
                      a->record.n = 0;
                    }},
        WrongResult{"OutOfOrder", "rank 0 out of order",
                    [](protocol::ExchangeReply* a) {
                      std::swap(a->record.included[0], a->record.included[1]);
                    }},
        WrongResult{"OfAnotherStep", "work of rank 1 for step 0",
                    [](protocol::ExchangeReply* a) { a->record.included[1].origin_step = 0; }},
        WrongResult{"Stranger", "no worker",
                    [](protocol::ExchangeReply* a) { a->record.included[1].rank = 2; }}),
    [](const testing::TestParamInfo<WrongResult>& c) { return std::string(c.param.name); });

// The result of a step that closed without this worker in a job with a quorum. It includes rank 1's
// contributions to the previous step and to this step.
class QuorumRecordTest : public PipelineTest {
 protected:
  protocol::ExchangeReply LeftOut() {
    Make("none", 1 << 20, /*world_size=*/2, true, 1, /*quorum=*/true);
    FinishStep();
    StartWhole();
    protocol::ExchangeReply answer = ResultOf(*TakeSends()[1]);
    answer.record.included = {{.rank = 1, .origin_step = 1, .checksum = 5, .skipped = false},
                              {.rank = 1, .origin_step = 2, .checksum = 6, .skipped = false}};
    answer.record.n = 2;
    answer.open_step = 5;
    return answer;
  }
};

TEST_F(QuorumRecordTest, MayLeaveThisWorkerOut) {
  protocol::ExchangeReply answer = LeftOut();
  for (const uint32_t bundle : {0, 1, 2}) {
    answer.bundle = answer.record.bundle = bundle;
    pipeline_->Answer(0, answer, &effects_);
  }
  ASSERT_FALSE(pipeline_->step_open()) << pipeline_->status();
  EXPECT_EQ(pipeline_->Result().steps_behind, 2u) << "steps 3 and 4 are closed";
  EXPECT_EQ(pipeline_->Result().n_max, 2u);
}

TEST_F(QuorumRecordTest, TellsNothingOfLaterStepsAndNothingTwice) {
  protocol::ExchangeReply answer = LeftOut();
  answer.record.included[1].origin_step = 3;
  pipeline_->Answer(0, answer, &effects_);
  EXPECT_THAT(pipeline_->status().message(), HasSubstr("work of rank 1 for step 3"));
  answer = LeftOut();
  answer.record.included[1].origin_step = 1;
  pipeline_->Answer(0, answer, &effects_);
  EXPECT_THAT(pipeline_->status().message(), HasSubstr("out of order"));
}

}  // namespace
}  // namespace sluice::worker
