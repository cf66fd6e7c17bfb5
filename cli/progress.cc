// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text.h"
#include "cli/launch/quantity.h"

namespace sluice::cli {
namespace {

double Ratio(double above, double below) { return below > 0 ? above / below : 0; }

// Returns the bytes of one step of a worker in dense fp32. With local steps, that is a share of an
// exchange. Returns 0 while a shard is not attached.
double DenseBytesPerStep(const v1::GetStatusReply& status) {
  double elements = 0;
  for (const v1::ShardStatus& shard : status.shards()) {
    if (!shard.attached()) return 0;
    elements += static_cast<double>(shard.elements());
  }
  const uint64_t steps = std::max<uint64_t>(status.steps_per_exchange(), 1);
  return elements * sizeof(float) / static_cast<double>(steps);
}

// Returns `bytes` divided by the number of steps. A worker's byte count is newer than its step
// count. Therefore the number of steps is computed from the dense fp32 bytes if they are known.
double PerStep(double bytes, double dense_bytes, double steps, double dense_bytes_per_step) {
  if (dense_bytes > 0 && dense_bytes_per_step > 0)
    return bytes / dense_bytes * dense_bytes_per_step;
  return Ratio(bytes, steps);
}

std::string StepOf(uint64_t step, uint64_t total) {
  return total > 0 ? absl::StrCat(step, "/", total) : absl::StrCat(step);
}

// The most useful columns come first, because a narrow terminal cuts off the right side.
std::string Row(absl::string_view name, absl::string_view step, absl::string_view loss,
                absl::string_view samples, absl::string_view up, absl::string_view down,
                absl::string_view ratio_up, absl::string_view ratio_down) {
  return absl::StrFormat("%6s %13s %8s %9s %9s %9s %7s %7s", name, step, loss, samples, up, down,
                         ratio_up, ratio_down);
}

std::string WorkerRow(const v1::MemberStatus& member, double dense_step) {
  const std::string name = absl::StrCat(member.rank(), member.lost() ? " lost" : "");
  if (!member.joined()) return Row(name, "not here yet", "", "", "", "", "", "");
  const v1::WorkerProgress& p = member.progress();
  return Row(name, StepOf(p.step(), p.total_steps()), absl::StrFormat("%.4f", p.loss()),
             absl::StrFormat("%.0f", p.samples_per_second()),
             FormatBytes(PerStep(p.bytes_up(), p.dense_bytes_up(), p.step(), dense_step)),
             FormatBytes(PerStep(p.bytes_down(), p.dense_bytes_down(), p.step(), dense_step)),
             FormatRatio(Ratio(p.dense_bytes_up(), p.bytes_up())),
             FormatRatio(Ratio(p.dense_bytes_down(), p.bytes_down())));
}

std::string TotalRow(const ProgressTotals& totals) {
  return Row("all", StepOf(totals.step, totals.total_steps), absl::StrFormat("%.4f", totals.loss),
             absl::StrFormat("%.0f", totals.samples_per_second),
             FormatBytes(totals.bytes_up_per_step), FormatBytes(totals.bytes_down_per_step),
             FormatRatio(totals.ratio_up), FormatRatio(totals.ratio_down));
}

absl::string_view PhaseName(v1::JobPhase phase) {
  switch (phase) {
    case v1::JOB_PHASE_RUNNING:
      return "running";
    case v1::JOB_PHASE_FINISHED:
      return "finished";
    case v1::JOB_PHASE_FAILED:
      return "failed";
    case v1::JOB_PHASE_RECOVERING:
      return "recovering";
    default:
      return "waiting";
  }
}

// Returns true while the job waits for processes.
bool IsGathering(v1::JobPhase phase) {
  return phase == v1::JOB_PHASE_WAITING || phase == v1::JOB_PHASE_RECOVERING;
}

std::string WaitingFor(const v1::GetStatusReply& status, const ProgressTotals& totals) {
  return absl::StrCat(totals.joined, " of ", status.world_size(), " workers and ",
                      totals.attached_shards, " of ", status.shards_size(), " shards have joined");
}

std::string Restarts(uint32_t count) {
  return absl::StrCat(count, count == 1 ? " restart" : " restarts");
}

std::string LossLine(const v1::GetStatusReply& status, const ProgressFrame& frame) {
  return absl::StrCat("lost: ", frame.last_death,
                      frame.last_death.empty() || status.last_rollback().empty() ? "" : "; ",
                      status.last_rollback());
}

std::string Repairs(uint32_t count) {
  return absl::StrCat(count, count == 1 ? " repair" : " repairs");
}

// Returns true if the running job requests exact recovery but would have to roll back now.
bool HasFallen(const v1::GetStatusReply& status) {
  return status.phase() == v1::JOB_PHASE_RUNNING && status.recovery_class() == "rollback" &&
         !status.recovery_reason().empty();
}

std::string HeadLine(const v1::GetStatusReply& status, const ProgressTotals& totals,
                     const ProgressFrame& frame) {
  std::string line = absl::StrCat(status.job_name(), "  ", PhaseName(status.phase()), " ",
                                  FormatElapsed(frame.elapsed));
  if (IsGathering(status.phase())) {
    absl::StrAppend(&line, "  ", WaitingFor(status, totals));
  } else {
    absl::StrAppend(&line, "  eta ", FormatElapsed(totals.time_left));
  }
  if (status.checkpoint_step() > 0) {
    absl::StrAppend(&line, "  checkpoint ", status.checkpoint_step());
  }
  if (frame.restarts > 0) absl::StrAppend(&line, "  ", Restarts(frame.restarts));
  if (status.repairs() > 0) absl::StrAppend(&line, "  ", Repairs(status.repairs()));
  if (!frame.page_url.empty()) absl::StrAppend(&line, "  ", frame.page_url);
  return line;
}

}  // namespace

ProgressTotals TotalsOf(const v1::GetStatusReply& status) {
  ProgressTotals totals;
  double steps = 0, up = 0, down = 0, dense_up = 0, dense_down = 0;
  std::optional<double> seconds_left;
  for (const v1::MemberStatus& member : status.members()) {
    if (!member.joined()) continue;
    const v1::WorkerProgress& p = member.progress();
    totals.step = totals.joined == 0 ? p.step() : std::min<uint64_t>(totals.step, p.step());
    totals.total_steps = std::max<uint64_t>(totals.total_steps, p.total_steps());
    totals.loss += p.loss();
    totals.samples_per_second += p.samples_per_second();
    steps += static_cast<double>(p.step());
    up += static_cast<double>(p.bytes_up());
    down += static_cast<double>(p.bytes_down());
    dense_up += static_cast<double>(p.dense_bytes_up());
    dense_down += static_cast<double>(p.dense_bytes_down());
    if (p.has_seconds_left()) {
      seconds_left = std::max(seconds_left.value_or(0), p.seconds_left());
    }
    ++totals.joined;
  }
  if (seconds_left.has_value()) totals.time_left = absl::Seconds(*seconds_left);
  if (totals.joined > 0) totals.loss /= totals.joined;
  const double dense_step = DenseBytesPerStep(status);
  totals.bytes_up_per_step = PerStep(up, dense_up, steps, dense_step);
  totals.bytes_down_per_step = PerStep(down, dense_down, steps, dense_step);
  totals.ratio_up = Ratio(dense_up, up);
  totals.ratio_down = Ratio(dense_down, down);
  for (const v1::ShardStatus& shard : status.shards()) {
    if (shard.attached()) ++totals.attached_shards;
  }
  return totals;
}

std::vector<std::string> ProgressTable(const v1::GetStatusReply& status, const ProgressFrame& frame,
                                       size_t width) {
  const ProgressTotals totals = TotalsOf(status);
  std::vector<std::string> lines = {HeadLine(status, totals, frame)};
  lines.push_back(Row("worker", "step", "loss", "samples/s", "up/step", "down/step", "up", "down"));
  const double dense_step = DenseBytesPerStep(status);
  size_t rows = 0;
  for (const v1::MemberStatus& member : status.members()) {
    if (++rows > kTableRowsMax) break;
    lines.push_back(WorkerRow(member, dense_step));
  }
  if (rows > kTableRowsMax) {
    lines.push_back(absl::StrCat("... and ", status.members_size() - kTableRowsMax, " more"));
  }
  lines.push_back(TotalRow(totals));
  if (!frame.last_death.empty() || !status.last_rollback().empty()) {
    lines.push_back(LossLine(status, frame));
  }
  if (!status.last_repair().empty()) {
    lines.push_back(absl::StrCat("repaired: ", status.last_repair()));
  }
  if (HasFallen(status)) {
    lines.push_back(absl::StrCat("recovery class rollback: ", status.recovery_reason()));
  }
  for (std::string& line : lines) {
    line = ValidText(line, width);
  }
  return lines;
}

std::string ProgressLine(const v1::GetStatusReply& status, const ProgressFrame& frame) {
  const ProgressTotals totals = TotalsOf(status);
  std::string survival;
  if (status.checkpoint_step() > 0) {
    absl::StrAppend(&survival, ", checkpoint ", status.checkpoint_step());
  }
  if (frame.restarts > 0) absl::StrAppend(&survival, ", ", Restarts(frame.restarts));
  if (status.repairs() > 0) absl::StrAppend(&survival, ", ", Repairs(status.repairs()));
  if (HasFallen(status)) absl::StrAppend(&survival, ", recovery class rollback");
  if (IsGathering(status.phase()) || totals.step == 0) {
    return absl::StrCat(FormatElapsed(frame.elapsed), " ", PhaseName(status.phase()), ": ",
                        WaitingFor(status, totals), survival);
  }
  // A program of the user's own reports neither its loss nor its length.
  const bool own_program = totals.samples_per_second == 0;
  return absl::StrFormat(
      "%s step %s%s up %s (%s) down %s (%s) per step and worker%s%s", FormatElapsed(frame.elapsed),
      StepOf(totals.step, totals.total_steps),
      own_program
          ? ""
          : absl::StrFormat(" loss %.4f %.0f samples/s", totals.loss, totals.samples_per_second),
      FormatBytes(totals.bytes_up_per_step), FormatRatio(totals.ratio_up),
      FormatBytes(totals.bytes_down_per_step), FormatRatio(totals.ratio_down),
      own_program ? "" : absl::StrCat(", eta ", FormatElapsed(totals.time_left)), survival);
}

}  // namespace sluice::cli
