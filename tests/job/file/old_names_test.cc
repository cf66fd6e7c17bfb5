// SPDX-License-Identifier: Apache-2.0
// Tests that the keys in job files of release 0.1 still work, each with a warning that gives the
// new name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job/file/job_file.h"

namespace sluice::job {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

constexpr absl::string_view kOldJob = R"(name: old
workers: 3
model: {name: mlp}
data: {format: synthetic}
batch_size_per_worker: 1
steps: 1
optimizer: {lr: 1, on: shards}
quorum: 2
grace: 20ms
average_buffers_every: 7
scalars_every: 8
encode_on: host
checkpoint: {dir: a, every: 9}
server: {lease: 5s, heartbeat: 500ms, wait_limit: 3m, stall_limit: 4m}
)";

absl::StatusOr<JobSpec> LoadOld(absl::string_view text, std::vector<std::string> set = {}) {
  return LoadJobFromText(text, "job.yaml", {"", std::move(set), false});
}

TEST(OldNames, MeanWhatTheNewOnesMean) {
  const absl::StatusOr<JobSpec> job = LoadOld(kOldJob);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->optimizer.location, job::UpdateLocation::kShards);
  EXPECT_EQ(job->exchange.straggler_timeout, absl::Milliseconds(20));
  EXPECT_EQ(job->exchange.buffer_sync_interval, 7u);
  EXPECT_EQ(job->log_interval, 8u);
  EXPECT_EQ(job->training.encode_location, job::EncodeLocation::kHost);
  EXPECT_EQ(job->checkpoint.interval, 9u);
  EXPECT_EQ(job->server.lease_timeout, absl::Seconds(5));
  EXPECT_EQ(job->server.heartbeat_interval, absl::Milliseconds(500));
  EXPECT_EQ(job->server.rejoin_timeout, absl::Minutes(3));
  EXPECT_EQ(job->server.stall_timeout, absl::Minutes(4));
  const absl::StatusOr<JobSpec> local = LoadOld(
      "name: a\nworkers: 2\nmodel: {name: mlp}\ndata: {format: synthetic}\n"
      "batch_size_per_worker: 1\nsteps: 1\noptimizer: {lr: 1}\nmode: local_sgd\nsync_every: 5\n");
  ASSERT_TRUE(local.ok()) << local.status();
  EXPECT_EQ(local->local.steps, 5u);
}

TEST(OldNames, EachHasAWarningWithItsPlaceAndTheNewName) {
  const absl::StatusOr<JobSpec> job = LoadOld(kOldJob);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->file_warnings, SizeIs(10));
  EXPECT_EQ(job->file_warnings[0],
            "job.yaml:7:20: 'optimizer.on' is now called 'optimizer.location'; release 0.3 no "
            "longer reads the old name");
  EXPECT_THAT(JobWarnings(*job)[0], HasSubstr("'optimizer.location'"));
}

TEST(OldNames, WorkOnTheCommandLine) {
  const absl::StatusOr<JobSpec> job = LoadOld(
      "name: a\nmodel: {name: mlp}\ndata: {format: synthetic}\nbatch_size_per_worker: 1\n"
      "steps: 1\noptimizer: {lr: 1}\n",
      {"server.lease=9s", "checkpoint={dir: a, every: 4}"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->server.lease_timeout, absl::Seconds(9));
  EXPECT_EQ(job->checkpoint.interval, 4u);
  EXPECT_THAT(job->file_warnings,
              ElementsAre(AllOf(StartsWith("--set server.lease=9s: 'server.lease' is now"),
                                HasSubstr("'server.lease_timeout'")),
                          HasSubstr("'checkpoint.every' is now called 'checkpoint.interval'")));
}

TEST(OldNames, AKeyUnderBothNamesIsGivenTwice) {
  const absl::StatusOr<JobSpec> job = LoadOld(
      "name: a\nmodel: {name: mlp}\ndata: {format: synthetic}\nbatch_size_per_worker: 1\n"
      "steps: 1\noptimizer: {lr: 1}\nserver: {lease: 9s, lease_timeout: 9s}\n");
  EXPECT_THAT(std::string(job.status().message()),
              HasSubstr("key 'lease_timeout' is given twice in server"));
}

TEST(OldNames, TheResolvedTextHasTheNewOnesOnly) {
  const absl::StatusOr<std::string> text = ResolvedJobTextFromText(kOldJob, "job.yaml", {});
  ASSERT_TRUE(text.ok()) << text.status();
  const absl::StatusOr<JobSpec> again = LoadOld(*text);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(again->file_warnings, IsEmpty());
  EXPECT_EQ(again->hash, LoadOld(kOldJob)->hash);
}

}  // namespace
}  // namespace sluice::job
