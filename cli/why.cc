// SPDX-License-Identifier: Apache-2.0
#include "cli/why.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cli/launch/quantity.h"
#include "cli/progress.h"
#include "cli/sentence.h"

namespace sluice::cli {
namespace {

// Returns, for example, " at step 120 of 468", or an empty text before the first step.
std::string Position(const ProgressTotals& totals) {
  if (totals.step == 0) return "";
  std::string text = absl::StrCat(" at step ", totals.step);
  if (totals.total_steps > 0) absl::StrAppend(&text, " of ", totals.total_steps);
  return text;
}

std::string State(const v1::GetStatusReply& status) {
  const ProgressTotals totals = TotalsOf(status);
  switch (status.phase()) {
    case v1::JOB_PHASE_WAITING:
      return absl::StrCat("has not begun: ", totals.joined, " of ", status.world_size(),
                          " workers and ", totals.attached_shards, " of ", status.shards_size(),
                          " shards have joined");
    case v1::JOB_PHASE_RECOVERING:
      return absl::StrCat("recovers", Position(totals), status.last_rollback().empty() ? "" : ": ",
                          status.last_rollback());
    case v1::JOB_PHASE_FINISHED:
      return absl::StrCat("has finished", Position(totals));
    case v1::JOB_PHASE_FAILED:
      return absl::StrCat("has ended without a result", Position(totals));
    default:
      break;
  }
  std::string text =
      absl::StrCat("runs", Position(totals), ", ",
                   FormatElapsed(absl::Milliseconds(status.uptime_ms())), " after shard 0 started");
  if (totals.time_left < absl::InfiniteDuration()) {
    absl::StrAppend(&text, "; ", FormatElapsed(totals.time_left), " are left");
  }
  return text;
}

void AppendWarnings(const v1::GetStatusReply& status, absl::string_view kind, std::string* text) {
  for (const v1::StatusWarning& warning : status.warnings()) {
    if (warning.kind() != kind) continue;
    absl::StrAppend(text, " ", Sentence(warning.text()));
    if (!warning.action().empty()) absl::StrAppend(text, " ", Sentence(warning.action()));
    if (!warning.runbook().empty()) {
      absl::StrAppend(text, " More: docs/operations.md#", warning.runbook(), ".");
    }
  }
}

bool Has(const v1::GetStatusReply& status, absl::string_view kind) {
  for (const v1::StatusWarning& warning : status.warnings()) {
    if (warning.kind() == kind) return true;
  }
  return false;
}

}  // namespace

std::string ExplainJob(const v1::GetStatusReply& received) {
  const v1::GetStatusReply status = WithoutControls(received);
  std::string text = absl::StrCat("The job ", status.job_name(), " ", State(status), ".");
  AppendWarnings(status, "problem", &text);
  AppendWarnings(status, "slow", &text);
  AppendWarnings(status, "note", &text);
  if (status.phase() == v1::JOB_PHASE_RUNNING && !Has(status, "problem") && !Has(status, "slow")) {
    absl::StrAppend(&text, " Nothing holds it up.");
  }
  if (status.phase() != v1::JOB_PHASE_FINISHED && status.checkpoint_step() > 0) {
    absl::StrAppend(&text, " The newest checkpoint is that after step ", status.checkpoint_step());
    if (status.seconds_since_checkpoint() > 0) {
      absl::StrAppend(&text, ", ", FormatElapsed(absl::Seconds(status.seconds_since_checkpoint())),
                      " old");
    }
    absl::StrAppend(&text, ".");
  }
  return text;
}

int ShowWhy(const StatusOptions& options) {
  v1::GetStatusReply status;
  if (const int failed = AskForStatus(options, &status); failed != 0) return failed;
  return std::fputs(absl::StrCat(ExplainJob(status), "\n").c_str(), stdout) < 0 ? 1 : 0;
}

}  // namespace sluice::cli
