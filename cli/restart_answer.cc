// SPDX-License-Identifier: Apache-2.0
#include "cli/restart_answer.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cli/launch/quantity.h"
#include "cli/sentence.h"
#include "cli/status.h"

namespace sluice::cli {
namespace {

constexpr double kSilentSeconds = 5;  // As for the warnings of the status page.

bool IsGone(const v1::ShardStatus& shard) { return shard.lost() || !shard.attached(); }

// The shard takes part in no checkpoint while this is true.
bool IsSilent(const v1::ShardStatus& shard) {
  return IsGone(shard) || shard.seconds_since_report() >= kSilentSeconds;
}

// Returns the other processes that the job waits for, for example "shard 0 and worker 3", or an
// empty text. A rank of an elastic job that no worker holds is not missing.
std::string MissingOthers(const v1::GetStatusReply& status, uint32_t shard) {
  std::vector<std::string> missing;
  for (const v1::ShardStatus& other : status.shards()) {
    if (other.shard() == shard || !IsGone(other)) continue;
    missing.push_back(absl::StrCat("shard ", other.shard()));
  }
  for (const v1::MemberStatus& member : status.members()) {
    if (member.lost()) missing.push_back(absl::StrCat("worker ", member.rank()));
  }
  return absl::StrJoin(missing, " and ");
}

std::string Problems(const v1::GetStatusReply& status) {
  std::string text;
  for (const v1::StatusWarning& warning : status.warnings()) {
    if (warning.kind() != "problem") continue;
    absl::StrAppend(&text, " ", Sentence(warning.text()));
    if (!warning.action().empty()) absl::StrAppend(&text, " ", Sentence(warning.action()));
  }
  return text;
}

// Returns, for example, " after step 100, 0:02 old".
std::string Newest(const v1::GetStatusReply& status) {
  std::string text = absl::StrCat(" after step ", status.checkpoint_step());
  if (status.seconds_since_checkpoint() > 0) {
    absl::StrAppend(&text, ", ", FormatElapsed(absl::Seconds(status.seconds_since_checkpoint())),
                    " old");
  }
  return text;
}

// Returns, for example, " (7 at present)".
std::string StepsSince(const v1::GetStatusReply& status) {
  uint64_t closed = 0;
  for (const v1::ShardStatus& shard : status.shards()) {
    closed = std::max<uint64_t>(closed, shard.highest_closed_step());
  }
  return absl::StrCat(" (", closed - std::min<uint64_t>(closed, status.checkpoint_step()),
                      " at present)");
}

// Says what the job does when the shard stops. `status` is that of a job with checkpoints.
std::string Consequence(const v1::GetStatusReply& status) {
  const bool first = status.checkpoint_step() == 0;
  if (status.recovery_class() == "replay") {
    return absl::StrCat(
        first ? "There is no checkpoint yet. The new process repeats all steps"
              : absl::StrCat("The newest checkpoint is that", Newest(status),
                             ". The new process reads it and replays the steps since"),
        StepsSince(status), " from data that the workers keep, so no step is lost.");
  }
  return absl::StrCat("The job then goes back to the checkpoint", Newest(status),
                      " and repeats the steps since", StepsSince(status),
                      status.recovery_reason().empty() ? "" : ", because ",
                      status.recovery_reason(), ".");
}

std::string WhatToDo(uint32_t shard) {
  return absl::StrCat(
      " Start it again within server.rejoin_timeout: the other processes wait that long, and then "
      "the job ends. `sluice run` and the Helm chart start it by themselves.",
      shard == 0
          ? " Shard 0 is also the coordinator, so these commands get no answer until it is back."
          : "",
      " Restart one shard at a time, and ask again before the next one.");
}

RestartAnswer No(std::string text) { return {.safe = false, .text = std::move(text)}; }

RestartAnswer Answer(const v1::GetStatusReply& status, const v1::ShardStatus& shard) {
  const std::string name =
      absl::StrCat("shard ", shard.shard(),
                   shard.address().empty() ? "" : absl::StrCat(" (", shard.address(), ")"));
  const std::string not_now =
      absl::StrCat("Do not restart ", name, " of the job ", status.job_name(), " now");
  if (status.recovery_class() != "replay" && status.recovery_class() != "rollback") {
    return No(absl::StrCat("Do not restart ", name, " of the job ", status.job_name(),
                           ": it has no checkpoints, so the loss of any process ends it. Wait "
                           "until it has finished, or run it with a `checkpoint` section."));
  }
  if (const std::string missing = MissingOthers(status, shard.shard()); !missing.empty()) {
    return No(absl::StrCat(not_now, ": the job waits for ", missing,
                           ", which must return first. `sluice why` says what to do about it."));
  }
  if (status.phase() != v1::JOB_PHASE_RUNNING) {
    return No(absl::StrCat(
        not_now, ": the job ",
        status.phase() == v1::JOB_PHASE_RECOVERING ? "recovers from a loss" : "has not begun",
        ". `sluice why` says what it waits for. Ask again when it runs."));
  }
  RestartAnswer answer{.safe = true, .checkpoint_helps = !IsSilent(shard)};
  if (status.recovery_class() == "rollback" && status.checkpoint_step() == 0) {
    answer.safe = false;
    answer.text = absl::StrCat(not_now,
                               ": there is no checkpoint yet, so the job would begin again. Wait "
                               "for the first one, or request it with `sluice drain` without "
                               "--check.");
    return answer;
  }
  // A silent shard may itself be the problem, and its restart the remedy.
  const std::string problems = IsSilent(shard) ? "" : Problems(status);
  if (!problems.empty()) {
    answer.safe = false;
    answer.text = absl::StrCat(not_now, ": first solve what is wrong with the job.", problems);
    return answer;
  }
  answer.text = absl::StrCat(
      Sentence(name).substr(0, name.size()), " of the job ", status.job_name(),
      IsGone(shard)     ? " is gone already, and the job waits for it. "
      : IsSilent(shard) ? absl::StrCat(" has not reported for ",
                                       static_cast<int64_t>(shard.seconds_since_report()),
                                       " s. It may be restarted now. ")
                        : " may be restarted now. ",
      Consequence(status), WhatToDo(shard.shard()));
  return answer;
}

}  // namespace

absl::StatusOr<RestartAnswer> MayRestart(const v1::GetStatusReply& received, uint32_t shard) {
  const v1::GetStatusReply status = WithoutControls(received);
  if (status.phase() == v1::JOB_PHASE_FINISHED || status.phase() == v1::JOB_PHASE_FAILED) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job ", status.job_name(),
        status.phase() == v1::JOB_PHASE_FINISHED ? " has finished" : " has ended without a result",
        ", so there is no shard to restart"));
  }
  for (const v1::ShardStatus& one : status.shards()) {
    if (one.shard() == shard) return Answer(status, one);
  }
  return absl::NotFoundError(absl::StrCat("the job ", status.job_name(), " has no shard ", shard,
                                          ": its shards are 0 to ",
                                          std::max(status.shards_size(), 1) - 1));
}

}  // namespace sluice::cli
