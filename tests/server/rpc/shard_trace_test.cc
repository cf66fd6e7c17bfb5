// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/shard_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/temporary_folder.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

protocol::ExchangeReply ResultOf(uint64_t step, uint32_t bundle) {
  protocol::ExchangeReply answer;
  answer.outcome = protocol::Outcome::kResult;
  answer.step = step;
  answer.bundle = bundle;
  return answer;
}

class ShardTraceTest : public ::testing::Test {
 protected:
  // Returns "NAME MICROSECONDS" of each span, in the order in which `write` wrote the spans. The
  // times of `write` are in microseconds since the argument. A wait has an event for its begin and
  // one for its end.
  std::vector<std::string> SpansOf(const std::function<void(ShardTrace*, absl::Time)>& write) {
    const TemporaryFolder folder;
    const absl::Time start = clock_.Now();
    {
      auto file = TraceFile::Create({.path = folder.Path("t"), .process = "p", .clock = &clock_});
      Check(file.ok(), file.status().message());
      ShardTrace trace(file->get());
      EXPECT_TRUE(trace.on());
      write(&trace, start);
    }
    std::vector<std::string> spans;
    std::map<std::string, double> begun;
    for (const auto& event : nlohmann::json::parse(std::ifstream(folder.Path("t")))) {
      const std::string kind = event.value("ph", "");
      const std::string name = event.value("name", "");
      if (kind == "X") spans.push_back(absl::StrCat(name, " ", std::lround(double{event["dur"]})));
      if (kind == "b") begun[name] = event["ts"];
      if (kind == "e") {
        spans.push_back(absl::StrCat(name, " ", std::lround(double{event["ts"]} - begun[name])));
      }
    }
    return spans;
  }

  SimulatedClock clock_;
};

constexpr TraceTags kTags{.step = 7, .bundle = 2};

TEST_F(ShardTraceTest, EncodingIsTheLastPartOfTheWorkOnAContribution) {
  EXPECT_THAT(SpansOf([](ShardTrace* trace, absl::Time at) {
                trace->Handled(kTags, at, at + absl::Microseconds(100), 30e-6);
                trace->Handled(kTags, at, at + absl::Microseconds(100), 0);
                trace->Handled(kTags, at, at + absl::Microseconds(100), 1);
                trace->Sent(at, at + absl::Microseconds(5));
              }),
              ElementsAre("sum 70", "encode 30", "sum 100", "sum 0", "encode 100", "send 5"));
}

TEST_F(ShardTraceTest, ABundleWaitsFromItsFirstContributionToItsLast) {
  EXPECT_THAT(SpansOf([](ShardTrace* trace, absl::Time at) {
                for (const int from : {0, 400, 900}) {
                  const absl::Time begin = at + absl::Microseconds(from);
                  trace->Handled(kTags, begin, begin + absl::Microseconds(1), 0);
                }
                trace->Answered(ResultOf(7, 2));
                trace->Answered(ResultOf(7, 2));  // The same result for another rank.
              }),
              ElementsAre("sum 1", "sum 1", "sum 1", "wait 900"));
}

TEST_F(ShardTraceTest, AResultWithoutATracedContributionHasNoWait) {
  EXPECT_THAT(
      SpansOf([](ShardTrace* trace, absl::Time /*at*/) { trace->Answered(ResultOf(7, 2)); }),
      IsEmpty());
}

TEST_F(ShardTraceTest, WithoutAFileThereIsNoTrace) { EXPECT_FALSE(ShardTrace(nullptr).on()); }

}  // namespace
}  // namespace sluice::server
