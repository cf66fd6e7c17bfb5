// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/lease_watch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/loss_report.h"
#include "server/coordinator/processes.h"
#include "server/coordinator/recovery_outlook.h"

namespace sluice::server {

void LeaseWatch::Tick(absl::Time now, Effects* out) {
  const absl::Duration gap = now - std::exchange(last_tick_, now);
  if (gap <= run_.options().server.lease_timeout / 4) return;
  run_.ShiftTimes(gap, now);
  out->push_back(
      Notice{.text = absl::StrCat("this process was suspended for ", absl::FormatDuration(gap),
                                  "; leases are extended by that time"),
             .fields = {.event = "stood_still"}});
}

void LeaseWatch::CheckJoins(absl::Time now, Effects* out) {
  if (run_.awaits_parent()) return;  // The parent job applies its own limit.
  const CoordinatorOptions& options = run_.options();
  const bool recovering = run_.is_recovering();
  const absl::Duration limit =
      recovering ? options.server.rejoin_timeout : options.server.join_timeout;
  if (now - run_.waiting_since() < limit) return;
  const std::string reason =
      recovering ? absl::StrCat("waited ", absl::FormatDuration(limit), ": ", run_.WhoIsMissing(),
                                " did not come back; restart the job with --resume, or "
                                "raise server.rejoin_timeout")
                 : absl::StrCat("waited ", absl::FormatDuration(limit), ": ", run_.WhoIsMissing(),
                                " did not join; start them, or raise "
                                "server.join_timeout");
  run_.TimeOut(reason, out);
}

void LeaseWatch::CheckLeases(absl::Time now, Effects* out) {
  LossReport loss(run_.options().server.lease_timeout);
  for (const uint32_t shard : run_.fleet().Silent(now, run_.options().server.lease_timeout)) {
    loss.AddSilent(Describe(run_.fleet()[shard]));
    if (run_.has_checkpoints()) run_.fleet().Disconnect(shard, out);
  }
  // Workers send heartbeats only after they have joined.
  if (run_.is_running()) run_.roster().AddLosses(run_.roster().Expired(now), &loss);
  if (loss.empty()) return;
  if (run_.has_checkpoints()) {
    run_.RollBack(loss.Text(), now, out);
  } else {
    loss.KeepFirst();
    run_.Fail(absl::StrCat(loss.Text(), "; the job cannot continue without it"), out);
  }
}

bool LeaseWatch::AnyLostTooLong(absl::Time now) const {
  const absl::Duration limit = run_.options().server.rejoin_timeout;
  const ShardFleet& fleet = run_.fleet();
  return run_.roster().AnyLostFor(limit, now) ||
         std::any_of(fleet.begin(), fleet.end(), [limit, now](const ShardSeat& seat) {
           return seat.lost && now - seat.heard >= limit;
         });
}

void LeaseWatch::AwaitLost(absl::Time now, Effects* out) {
  ShardFleet& fleet = run_.fleet();
  const std::string limit = absl::FormatDuration(run_.options().server.rejoin_timeout);
  const bool too_long = AnyLostTooLong(now);
  LossReport loss(run_.options().server.lease_timeout);
  bool shard_lost = false;
  for (const uint32_t shard : fleet.Silent(now, run_.options().server.lease_timeout)) {
    loss.AddSilent(Describe(fleet[shard]));
    fleet.MarkLost(shard);
    fleet.Disconnect(shard, out);
    shard_lost = true;
  }
  const bool worker_lost = run_.roster().MarkLost(now, &loss);
  if (too_long) {
    run_.TimeOut(absl::StrCat("waited ", limit, ": ", LostProcesses(run_.roster(), fleet),
                              " did not come back; restart the job with --resume, or raise "
                              "server.rejoin_timeout"),
                 out);
    return;
  }
  if (loss.empty()) return;
  const std::string why_not = RecoveryOutlook(run_).WhyNoRepair(shard_lost, worker_lost);
  const std::string text = loss.Text();
  if (why_not.empty()) {
    out->push_back(Notice{.text = absl::StrCat(text, "; the others wait up to ", limit,
                                               " (server.rejoin_timeout) for it or a replacement"),
                          .warning = true,
                          .fields = {.event = "lost"}});
  } else {
    run_.RollBack(absl::StrCat(text, ", and ", why_not), now, out);
  }
}

}  // namespace sluice::server
