// SPDX-License-Identifier: Apache-2.0
// Tests that presets are jobs, that a job's own keys override them, and that nothing of the name is
// left in the job.
#include "job/file/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/job/file/job_text_samples.h"

namespace sluice::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A job of four workers that a preset can complete. It has checkpoints, which elastic jobs need.
std::string JobWithPreset(absl::string_view preset) {
  return absl::StrCat(kLeastJob, "workers: 4\ncheckpoint: {dir: c}\npreset: ", preset, "\n");
}

absl::StatusOr<std::string> Resolved(const std::string& text,
                                     const std::vector<std::string>& set = {}) {
  return ResolvedJobTextFromText(text, "job.yaml", {.path = "", .set = set});
}

TEST(Presets, EachCompletesAJob) {
  for (const Preset& preset : Presets()) {
    const absl::StatusOr<std::string> text = Resolved(JobWithPreset(preset.name));
    ASSERT_TRUE(text.ok()) << preset.name << ": " << text.status();
    EXPECT_THAT(*text, Not(HasSubstr("preset")));
    const absl::StatusOr<std::string> again = Resolved(*text);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, *text);
    const absl::StatusOr<std::string> with_keys = Resolved(
        absl::StrCat(
            "name: tiny\nmodel: {name: mlp}\ndata: {format: synthetic}\nbatch_size_per_worker: 8\n"
            "steps: 5\nworkers: 4\ncheckpoint: {dir: c}\n",
            PresetText(preset)),
        {"optimizer.lr=0.1"});
    ASSERT_TRUE(with_keys.ok()) << preset.name << ": " << with_keys.status();
    EXPECT_EQ(*with_keys, *text) << "what is printed is what the preset does";
  }
}

TEST(Presets, TheJobsOwnKeysOverrideSingleKeys) {
  const absl::StatusOr<JobSpec> job = Load(
      absl::StrCat(JobWithPreset("diloco"), "local_steps: 30\ncompression: {downlink: int8}\n"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->exchange.mode, Mode::kLocalSgd);
  EXPECT_EQ(job->local.steps, 30u);
  EXPECT_EQ(job->local.outer_momentum, 0.9);
  EXPECT_EQ(job->optimizer.name, "adamw");
  EXPECT_EQ(job->optimizer.lr, 0.1) << "of the job's own section";
  const absl::StatusOr<JobSpec> streaming =
      Load(absl::StrCat(JobWithPreset("streaming_diloco"), "compression: {downlink: int8}\n"),
           {"fragments=2"});
  ASSERT_TRUE(streaming.ok()) << streaming.status();
  EXPECT_EQ(streaming->exchange.compression.layout.fragments, 2u);
  EXPECT_EQ(ToString(streaming->exchange.compression.uplink), "int4");
  EXPECT_EQ(ToString(streaming->exchange.compression.downlink), "int8");
}

TEST(Presets, TheCommandLineMayNameOne) {
  const absl::StatusOr<JobSpec> job = Load(JobWithPreset("diloco"), {"preset=onebit"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->exchange.mode, Mode::kSync);
  EXPECT_EQ(ToString(job->exchange.compression.uplink), "onebit");
}

TEST(Presets, AnUnknownOneIsRefused) {
  const absl::StatusOr<JobSpec> job = Load(JobWithPreset("dilloco"));
  EXPECT_THAT(std::string(job.status().message()),
              AllOf(HasSubstr("job.yaml:"), HasSubstr("did you mean 'diloco'?"),
                    HasSubstr("streaming_diloco")));
}

TEST(Presets, AConflictNamesThePreset) {
  const absl::StatusOr<JobSpec> job = Load(absl::StrCat(JobWithPreset("diloco"), "mode: sync\n"));
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("preset diloco"));
}

}  // namespace
}  // namespace sluice::job
