// SPDX-License-Identifier: Apache-2.0
#include "job/file/reference_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "job/file/job_file.h"
#include "tests/job/file/job_text_samples.h"

namespace sluice::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHeader[] = "step,epoch,loss,test_accuracy,test_loss\n";

std::string Written(absl::string_view text) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".csv");
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string RefusalOf(absl::string_view text) {
  const absl::Status status = ReadReferenceFile(Written(text)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(ReferenceFile, HasTheTestsOfARun) {
  const auto curve = ReadReferenceFile(
      Written(absl::StrCat(kHeader, "10,0,2.3,,\n20,1,1.5,0.25,1.4\r\n30,1,1,,\n40,2,0.9,1,1\n")));
  ASSERT_TRUE(curve.ok()) << curve.status();
  ASSERT_EQ(curve->size(), 2u);
  EXPECT_EQ((*curve)[0].step, 20u);
  EXPECT_EQ((*curve)[0].metric, 25);
  EXPECT_EQ((*curve)[1].step, 40u);
  EXPECT_EQ((*curve)[1].metric, 100);
}

TEST(ReferenceFile, OthersAreRefusedWithTheLine) {
  EXPECT_THAT(RefusalOf(""), HasSubstr("has 0 points"));
  EXPECT_THAT(RefusalOf("a,b\n"),
              AllOf(HasSubstr(":1: there are no columns"), HasSubstr("test_accuracy")));
  EXPECT_THAT(RefusalOf(kHeader), HasSubstr("has 0 points"));
  EXPECT_THAT(RefusalOf(absl::StrCat(kHeader, "10,0\n")),
              AllOf(HasSubstr(":2: there are 2 cells"), HasSubstr("5 columns")));
  for (const char* row :
       {"x,0,1,0.5,1", "-1,0,1,0.5,1", "1,0,1,nan,1", "1,0,1,1.5,1", "1,0,1,-0.1,1"}) {
    EXPECT_THAT(RefusalOf(absl::StrCat(kHeader, row, "\n")), HasSubstr(":2: step must be")) << row;
  }
  EXPECT_THAT(RefusalOf(absl::StrCat(kHeader, "20,0,1,0.5,1\n10,0,1,0.5,1\n")),
              HasSubstr("not after the previous one"));
  EXPECT_THAT(RefusalOf(absl::StrCat(kHeader, std::string(5000, '1'), "\n")),
              HasSubstr("a line of 4096 bytes"));
  EXPECT_THAT(ReadReferenceFile(::testing::TempDir()).status().message(),
              HasSubstr("cannot be read"));
  std::string many = kHeader;
  for (size_t step = 0; step <= kCurvePointsMax; ++step)
    absl::StrAppend(&many, step, ",0,1,0.5,1\n");
  EXPECT_THAT(RefusalOf(many), HasSubstr("more than 10000 tests"));
}

std::string JobWith(absl::string_view path) {
  return absl::StrCat(kLeastJob, "compression: {uplink: 'topk:1%', downlink: 'topk:1%'}\n",
                      "control: {policy: accuracy, reference: ", path, "}\n");
}

TEST(ReferenceFile, StandsInTheResolvedJobAsPoints) {
  const std::string path = Written(absl::StrCat(kHeader, "20,1,1.5,0.25,1.4\n"));
  const auto text = ResolvedJobTextFromText(JobWith(path), "job.yaml", {});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("reference_points:"));
  EXPECT_THAT(*text, Not(HasSubstr(path)));
  // The resolved text must give the same job without the reference file.
  const auto job = LoadJobFromText(JobWith(path), "job.yaml", {});
  const auto again = LoadJobFromText(*text, "resolved.yaml", {});
  ASSERT_TRUE(job.ok() && again.ok()) << job.status() << again.status();
  EXPECT_EQ(job->hash, again->hash);
  ASSERT_EQ(again->exchange.control.reference.size(), 1u);
  EXPECT_EQ(again->exchange.control.reference[0].step, 20u);
  EXPECT_NEAR(again->exchange.control.reference[0].metric, 25, 1e-9);
  EXPECT_EQ(again->exchange.control.tolerance, 0.5);
}

// A dense run must not need the reference file, because such a run writes it.
TEST(ReferenceFile, ADenseRunNeedsNone) {
  EXPECT_TRUE(LoadJobFromText(JobWith("/no/such.csv"), "job.yaml", {"", {}, true}).ok());
}

}  // namespace
}  // namespace sluice::job
