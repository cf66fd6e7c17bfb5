// SPDX-License-Identifier: Apache-2.0
// Tests which choices the policy `auto` tries, and what it remembers of them, where steps take
// longer than measurements of the links show.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "server/control/auto.h"
#include "server/control/bit_allocation.h"
#include "tests/server/control/simulated_job.h"

namespace sluice::server {
namespace {

constexpr double kComputeSeconds = 0.1;
constexpr double kOverlap = 0.15;

// The codecs of rank 0 and of the results.
struct Codecs {
  std::string up;
  std::string down;

  friend bool operator==(const Codecs&, const Codecs&) = default;
  friend void PrintTo(const Codecs& codecs, std::ostream* os) {
    *os << codecs.up << " / " << codecs.down;
  }
};

// Seconds of a step with a choice, and the rate of the links in that step.
struct Step {
  double seconds;
  double rate;
};

// Two ranks whose steps take as long as a function says. Each choice takes effect at once.
class Job {
 public:
  Job(const std::vector<std::string>& codecs, std::function<Step(const Choice&)> step)
      : step_of_(std::move(step)) {
    AutoOptions options{.ranks = 2, .tensors = SomeTensors(), .overlap = kOverlap};
    for (const std::string& codec : codecs) {
      options.choices.push_back({*compress::ParseCodecSpec(codec), 0, 0, 0});
    }
    options.first = options.choices.front().spec;
    policy_ = *MakeAutoPolicy(options);
    now_ = policy_->First();
  }

  void Run(uint64_t steps) {
    for (uint64_t end = step_ + steps; step_ < end; ++step_) {
      std::optional<Choice> next = policy_->Next(Measured());
      if (!next.has_value()) continue;
      now_ = *std::move(next);
      chosen_.push_back(codecs());
    }
  }

  Codecs codecs() const { return {ToString(now_.up[0].codecs[0]), ToString(now_.down.codecs[0])}; }
  // All choices, in order.
  const std::vector<Codecs>& chosen() const { return chosen_; }

 private:
  StepMeasurements Measured() const {
    const Step step = step_of_(now_);
    StepMeasurements measured{.step = step_, .ranks = {}};
    for (size_t rank = 0; rank < 2; ++rank) {
      RankMeasurements& each = measured.ranks.emplace_back();
      each.compute_s = kComputeSeconds;
      each.exposed_s = step.seconds - kComputeSeconds;
      for (const double bytes : {1e6, 1e5}) {
        each.up.push_back({.bytes = static_cast<uint64_t>(bytes), .seconds = bytes / step.rate});
        each.down.push_back({.bytes = static_cast<uint64_t>(bytes), .seconds = bytes / step.rate});
      }
    }
    return measured;
  }

  std::function<Step(const Choice&)> step_of_;
  std::unique_ptr<Policy> policy_;
  Choice now_;
  uint64_t step_ = 1;
  std::vector<Codecs> chosen_;
};

double BytesOf(const std::string& codec) {
  return SpendEvenly(SomeTensors(), *compress::ParseCodecSpec(codec))->coding.bytes;
}

// The seconds that the policy's model predicts for links of this rate.
double Predicted(const Choice& choice, double rate) {
  return std::max(kComputeSeconds, (1 - kOverlap) * kComputeSeconds +
                                       (choice.up[0].bytes + choice.down.bytes) / rate);
}

// The links hide all bytes, so the model prefers int8. In fact, a step is fast only if neither
// direction uses int8.
TEST(AutoTrial, TriesFewerBytesInBothDirectionsAtOnce) {
  Job job({"int8", "int4"}, [](const Choice& choice) {
    const double int8 = BytesOf("int8");
    const bool slow = choice.up[0].bytes == int8 || choice.down.bytes == int8;
    return Step{.seconds = slow ? 2 * kComputeSeconds : kComputeSeconds, .rate = 1e12};
  });
  job.Run(kAutoTry);
  ASSERT_EQ(job.codecs(), (Codecs{"int8", "int8"}));
  job.Run(3 * kAutoTry);
  EXPECT_EQ(job.codecs(), (Codecs{"int4", "int4"}));
}

// Computing hides exactly the bytes of int4 in both directions, so the model prefers int4. In fact,
// a step is fast only if neither direction uses int4.
TEST(AutoTrial, TriesMoreBytesInBothDirectionsAtOnce) {
  const double rate = 2 * BytesOf("int4") / (kOverlap * kComputeSeconds);
  Job job({"int8", "int4"}, [rate](const Choice& choice) {
    const double int4 = BytesOf("int4");
    const bool slow = choice.up[0].bytes == int4 || choice.down.bytes == int4;
    return Step{.seconds = Predicted(choice, rate) + (slow ? 5 * kComputeSeconds : 0),
                .rate = rate};
  });
  job.Run(kAutoTry);
  ASSERT_EQ(job.codecs(), (Codecs{"int4", "int4"}));
  job.Run(3 * kAutoTry);
  EXPECT_EQ(job.codecs(), (Codecs{"int8", "int8"}));
}

// Small transfers pass at full speed, and large ones empty a token bucket in their first step. The
// policy falls back at once. It must not rise again as soon as the small transfers look fast.
TEST(AutoTrial, RemembersARiseThatWasTooLarge) {
  Job job({"none", "topk:1%"}, [](const Choice& choice) {
    const double none = BytesOf("none");
    const bool slow = choice.up[0].bytes == none || choice.down.bytes == none;
    const double rate = slow ? 1e8 : 1e12;
    return Step{.seconds = Predicted(choice, rate), .rate = rate};
  });
  job.Run(600);
  EXPECT_EQ(job.codecs(), (Codecs{"topk:1%", "topk:1%"}));
  EXPECT_LE(std::count(job.chosen().begin(), job.chosen().end(), Codecs{"none", "none"}), 1);
}

}  // namespace
}  // namespace sluice::server
