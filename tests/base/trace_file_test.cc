// SPDX-License-Identifier: Apache-2.0
#include "base/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "tests/temporary_folder.h"

namespace sluice {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Returns the events of kind X, which are spans.
std::vector<Json> Spans(const Json& events) {
  std::vector<Json> spans;
  for (const Json& event : events) {
    if (event.value("ph", "") == "X") spans.push_back(event);
  }
  return spans;
}

TEST(TraceFile, TellsWhatAThreadDid) {
  const TemporaryFolder folder;
  SimulatedClock clock;
  {
    const auto trace = TraceFile::Create({.path = folder.Path("t"),
                                          .process = "worker 3 of \"a\\b\"",
                                          .number = 3,
                                          .clock = &clock});
    ASSERT_TRUE(trace.ok()) << trace.status();
    (*trace)->NameThread("training");
    const absl::Time begin = clock.Now();
    (*trace)->Span("step", begin, begin + absl::Milliseconds(2), {.step = 7});
    (*trace)->Span("encode", begin + absl::Microseconds(1), begin + absl::Milliseconds(1),
                   {.step = 7, .bundle = 2});
    (*trace)->Overlapping("wait", 5, begin, begin + absl::Milliseconds(3), {.step = 7});
  }
  const Json events = Json::parse(ReadAll(folder.Path("t")));
  EXPECT_EQ(events[0]["args"]["name"], "worker 3 of \"a\\b\"");
  EXPECT_EQ(events[1]["args"]["name"], "training");
  const std::vector<Json> spans = Spans(events);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["name"], "step");
  EXPECT_EQ(spans[0]["pid"], 3);
  EXPECT_EQ(spans[0]["tid"], events[1]["tid"]);
  EXPECT_EQ(spans[0]["args"], Json({{"step", 7}}));
  EXPECT_EQ(spans[1]["args"], Json({{"step", 7}, {"bundle", 2}}));
  EXPECT_NEAR(spans[0]["dur"].get<double>(), 2000, 1e-3);
  EXPECT_NEAR(spans[1]["ts"].get<double>() - spans[0]["ts"].get<double>(), 1,
              0.6);  // The tolerance is due to the resolution of doubles.
  EXPECT_EQ(events[4]["ph"], "b");
  EXPECT_EQ(events[5]["ph"], "e");
  EXPECT_EQ(events[4]["id"], events[5]["id"]);
}

TEST(TraceFile, IsReadableWhileItIsWritten) {
  const TemporaryFolder folder;
  SimulatedClock clock;
  const auto trace = TraceFile::Create({.path = folder.Path("t"), .clock = &clock});
  ASSERT_TRUE(trace.ok()) << trace.status();
  (*trace)->Span("step", clock.Now(), clock.Now());
  // An unfinished file lacks the final `{}]`; viewers add it.
  const Json events = Json::parse(ReadAll(folder.Path("t")) + "{}]");
  EXPECT_EQ(Spans(events).size(), 1u);
}

TEST(TraceFile, HasALimit) {
  const TemporaryFolder folder;
  const SteadyClock clock;
  {
    const auto trace =
        TraceFile::Create({.path = folder.Path("t"), .clock = &clock, .bytes_max = 4000});
    ASSERT_TRUE(trace.ok()) << trace.status();
    for (int i = 0; i < 1000; ++i) (*trace)->Span("step", clock.Now(), clock.Now());
  }
  const std::string text = ReadAll(folder.Path("t"));
  EXPECT_LE(text.size(), 4000u);
  EXPECT_GT(Spans(Json::parse(text)).size(), 10u);
}

TEST(TraceFile, EventsOfSeveralThreadsDoNotMix) {
  const TemporaryFolder folder;
  const SteadyClock clock;
  {
    const auto trace = TraceFile::Create({.path = folder.Path("t"), .clock = &clock});
    ASSERT_TRUE(trace.ok()) << trace.status();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 200; ++j) (*trace)->Span("step", clock.Now(), clock.Now());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(Spans(Json::parse(ReadAll(folder.Path("t")))).size(), 800u);
}

TEST(TraceFile, OtherUsersMayNotReadIt) {
  const TemporaryFolder folder;
  const SteadyClock clock;
  const mode_t mask = ::umask(0);
  EXPECT_TRUE(TraceFile::Create({.path = folder.Path("t"), .clock = &clock}).ok());
  ::umask(mask);
  EXPECT_EQ(std::filesystem::status(folder.Path("t")).permissions(), std::filesystem::perms(0640));
}

TEST(TraceFile, AFolderThatIsMissingIsNamed) {
  const SteadyClock clock;
  const auto trace = TraceFile::Create({.path = "/no/such/folder/t", .clock = &clock});
  EXPECT_TRUE(absl::IsUnavailable(trace.status()));
  EXPECT_THAT(std::string(trace.status().message()), HasSubstr("/no/such/folder/t"));
}

}  // namespace
}  // namespace sluice
