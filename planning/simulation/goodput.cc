// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/goodput.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/closing_rule.h"

namespace sluice::planning {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Limit of the steps of one worker.
constexpr double kStepsMax = 1e7;

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

// The outages that matter to an exchange, for a caller that goes through time.
class Availability {
 public:
  explicit Availability(const std::vector<Outage>& outages) : outages_(outages) {}

  // Returns the outages, by worker, that overlap with the time from `begin` to `end`: the first one
  // of each worker. Times must not descend.
  const std::map<uint32_t, Outage>& Between(double begin, double end) {
    std::erase_if(open_, [&](const Outage& outage) { return outage.end_s <= begin; });
    for (; next_ < outages_.size() && outages_[next_].begin_s <= end; ++next_) {
      if (outages_[next_].end_s > begin) open_.push_back(outages_[next_]);
    }
    found_.clear();
    for (const Outage& outage : open_) found_.emplace(outage.worker, outage);
    return found_;
  }

 private:
  const std::vector<Outage>& outages_;
  size_t next_ = 0;
  std::vector<Outage> open_;  // By time of begin.
  std::map<uint32_t, Outage> found_;
};

// A failure at any time loses the steps since the last checkpoint and everything until all workers
// are up, have started and have read it.
double PlainGoodput(const GoodputSpec& spec) {
  double useful = 0;
  double now = 0;
  const std::vector<Outage>& outages = spec.outages;
  size_t next = 0;
  double all_up = 0;  // When all workers that have failed so far are back.
  while (now < spec.duration_s) {
    const double fails = next < outages.size() ? outages[next].begin_s : kNever;
    const double until = std::min(fails, spec.duration_s);
    if (until > now) {
      const bool ends = until == spec.duration_s;
      const double runs = until - now;
      useful += ends ? runs : std::floor(runs / spec.checkpoint_s) * spec.checkpoint_s;
    }
    if (next == outages.size()) break;
    // More failures until all are up again only delay the start.
    all_up = std::max(all_up, outages[next].end_s);
    now = std::max(fails + spec.lease_s, all_up) + spec.restart_s;
    for (++next; next < outages.size() && outages[next].begin_s < now; ++next) {
      all_up = std::max(all_up, outages[next].end_s);
      now = std::max(now, all_up + spec.restart_s);
    }
  }
  return useful / spec.duration_s;
}

// The bundle of an exchange, and the shards' rule that closes it.
class Exchange {
 public:
  Exchange(uint32_t workers, uint32_t quorum, double grace_s) : options_(Options(workers)) {
    options_.exchange.quorum = quorum;
    options_.exchange.straggler_timeout = absl::Seconds(grace_s);
  }

  // Returns when an exchange closes. All workers arrive at `done`, except for those of `lost`,
  // whose leases end at these times. Then the bundle no longer waits for them. The infinite future
  // if the bundle never closes.
  double Close(double done, const std::map<uint32_t, double>& lost, double slack_s) {
    const server::ClosingRule::Step step{.step = 1};
    server::ClosingRule rule(&options_, {false});
    server::SumPool pool(0);
    const auto workers = static_cast<uint32_t>(options_.incarnations.size());
    server::OpenBundle bundle({}, {}, workers, options_.exchange.quorum, &pool);
    std::vector<std::pair<double, uint32_t>> ends;  // Times and workers.
    ends.reserve(lost.size());
    for (const auto& [worker, lease_ends] : lost) ends.emplace_back(lease_ends, worker);
    std::sort(ends.begin(), ends.end());
    auto end = ends.begin();
    for (; end != ends.end() && end->first <= done; ++end) bundle.Expect(end->second, false);
    const protocol::Work work{.slack_us = static_cast<uint64_t>(slack_s * 1e6)};
    rule.Advance(At(done));
    for (uint32_t worker = 0; worker < workers; ++worker) {
      if (!lost.contains(worker)) bundle.Admit(worker, 0, 0, {}, At(done), 1, work);
    }
    rule.NoteQuorum(0, bundle);
    if (rule.IsDue(step, 0, bundle)) return done;
    for (; end != ends.end(); ++end) {
      const double due = absl::ToDoubleSeconds(rule.DueAt(step) - absl::UnixEpoch());
      if (due <= end->first) return due;
      rule.Advance(At(end->first));
      bundle.Expect(end->second, false);
      if (rule.IsDue(step, 0, bundle)) return end->first;
    }
    return absl::ToDoubleSeconds(rule.DueAt(step) - absl::UnixEpoch());
  }

 private:
  static server::ShardOptions Options(uint32_t workers) {
    server::ShardOptions options;
    options.incarnations.resize(workers);
    std::iota(options.incarnations.begin(), options.incarnations.end(), 1);
    return options;
  }

  server::ShardOptions options_;
};

// Runs exchanges of `steps` steps. `meanwhile` of them come before a worker needs the result.
double ElasticGoodput(const GoodputSpec& spec, uint64_t steps, uint64_t meanwhile,
                      uint32_t quorum) {
  Availability availability(spec.outages);
  Exchange exchange(spec.workers, quorum, spec.grace_s);
  const double computes = spec.step_s * static_cast<double>(steps);
  const double slack = spec.step_s * static_cast<double>(meanwhile);
  double useful = 0;
  double now = 0;
  while (now < spec.duration_s) {
    const double done = now + computes;
    std::map<uint32_t, double> lost;  // Workers, and when their leases end.
    bool waits = false;
    for (const auto& [worker, outage] : availability.Between(now, done)) {
      lost[worker] = outage.begin_s + spec.lease_s;
      waits = waits || lost[worker] > done;
    }
    const double closes = waits ? exchange.Close(done, lost, slack) : done;
    if (!std::isfinite(closes)) break;  // The quorum is lost for good.
    useful += computes * static_cast<double>(spec.workers - lost.size());
    now = std::max(done, closes - slack);
  }
  return useful / (std::max(now, spec.duration_s) * spec.workers);
}

absl::Status CheckGoodput(const GoodputSpec& spec) {
  const bool valid = spec.workers > 0 && spec.step_s > 0 && spec.duration_s > 0 &&
                     spec.lease_s >= 0 && spec.restart_s >= 0 && spec.checkpoint_s > 0 &&
                     spec.local_steps > spec.delay_steps && spec.quorum > 0 && spec.quorum <= 1 &&
                     spec.grace_s >= 0;
  if (!valid) {
    return absl::InvalidArgumentError(
        "goodput: workers and times must be positive, the quorum a share in (0, 1], and the delay "
        "less than the local steps");
  }
  for (const Outage& outage : spec.outages) {
    if (outage.worker < spec.workers) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("goodput: worker ", outage.worker, " fails, and there are ", spec.workers));
  }
  if (spec.duration_s / spec.step_s > kStepsMax) {
    return absl::ResourceExhaustedError(absl::StrCat("goodput: ", spec.duration_s,
                                                     " s have more than ", kStepsMax, " steps of ",
                                                     spec.step_s, " s: simulate a shorter time"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Goodput> SimulateGoodput(const GoodputSpec& spec) {
  const absl::Status valid = CheckGoodput(spec);
  if (!valid.ok()) return valid;
  const auto quorum = static_cast<uint32_t>(std::ceil(spec.quorum * spec.workers));
  return Goodput{.plain = PlainGoodput(spec),
                 .elastic = ElasticGoodput(spec, 1, 0, 0),
                 .quorate = ElasticGoodput(spec, spec.local_steps, spec.delay_steps, quorum)};
}

}  // namespace sluice::planning
