// SPDX-License-Identifier: Apache-2.0
#include "job/file/mode_checks.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "job/enums.h"
#include "job/file/job_conversion.h"
#include "job/file/schema.h"
#include "job/modes.h"
#include "job/support.h"

namespace sluice::job {
namespace {

// Returns the names of the modes that take a key, after "mode " or "modes ".
std::string ModesOfKey(absl::string_view key) {
  std::vector<absl::string_view> modes;
  for (const ModeTraits& mode : kModes) {
    for (const ModeKey& taken : mode.keys.value()) {
      if (taken.name.value() == key) modes.push_back(mode.name);
    }
  }
  return absl::StrCat(modes.size() == 1 ? "mode " : "modes ", absl::StrJoin(modes, " and "));
}

// Checks that the job has the keys of its mode, and none of other modes.
void CheckModeKeys(const v1::JobSpec& job, Mode mode, const FailAt& fail) {
  std::set<absl::string_view> taken;
  const auto given = [&job](absl::string_view key) {
    const google::protobuf::FieldDescriptor* const field = FindKey(*job.GetDescriptor(), key);
    Check(field != nullptr, "the schema has the keys of every mode");
    return job.GetReflection()->HasField(job, field);
  };
  for (const ModeKey& key : TraitsOf(mode).keys.value()) {
    taken.insert(key.name);
    if (key.needed && !given(key.name)) {
      fail(key.name, absl::StrCat("missing; mode ", NameOf(mode), " needs it"));
    }
  }
  for (const ModeTraits& other : kModes) {
    for (const ModeKey& key : other.keys.value()) {
      if (!taken.insert(key.name).second || !given(key.name)) continue;
      fail(key.name, absl::StrCat("is a key of ", ModesOfKey(key.name), "; this job has mode ",
                                  NameOf(mode), "; remove it"));
    }
  }
}

// Requires that each exchange ends before the next one begins.
void CheckFragments(const v1::JobSpec& job, const FailAt& fail) {
  const uint64_t steps = std::max<uint64_t>(job.local_steps(), 1);
  const uint64_t fragments = job.has_fragments() ? job.fragments() : 1;
  if (fragments > steps) {
    fail("fragments", absl::StrCat("is ", fragments, ", and local_steps is ", steps,
                                   "; each fragment is exchanged once in local_steps steps, so use "
                                   "at most one fragment per step"));
  } else if (job.fragment_delay() > 0 && job.fragment_delay() >= steps / fragments) {
    fail("fragment_delay",
         absl::StrCat("is ", job.fragment_delay(), ", but the next exchange begins after ",
                      steps / fragments, " of the steps (local_steps / fragments); use at most ",
                      steps / fragments - 1));
  }
  if (job.ema_decay() > 0 && (fragments > 1 || job.fragment_delay() > 0 || job.merge_alpha() > 0)) {
    fail("ema_decay",
         "averages the parameters that all workers have after an exchange; with fragments, "
         "fragment_delay or merge_alpha they never have equal ones; remove one of them");
  }
}

// A guard compares the contributions of at least three ranks.
void CheckGuard(const v1::JobSpec& job, const FailAt& fail) {
  constexpr uint32_t kLeast = 3;
  if (!job.has_guard() || FindByName<GuardPolicy>(job.guard().policy()) == GuardPolicy::kOff) {
    return;
  }
  const auto senders = job.has_relays() ? static_cast<uint32_t>(job.relays().workers_size())
                                        : std::max(job.workers(), job.max_workers());
  if (senders < kLeast) {
    fail("guard", absl::StrCat("needs at least ", kLeast, job.has_relays() ? " relays" : " workers",
                               " to find one that differs; this job has ", senders));
  }
}

// Followers read the parameters from the shards, which have them or get them from rank 0.
void CheckFollowers(const v1::JobSpec& job, Mode mode, const FailAt& fail) {
  if (!job.has_followers()) return;
  const UpdateLocation location = *FindByName<UpdateLocation>(job.optimizer().location());
  if (RuleOf(mode, location, job.optimizer().name()) == "average" && job.has_relays()) {
    fail("followers",
         "get the parameters from rank 0 in this job, and relays do not forward them: set "
         "optimizer.location to `shards`, mode to `local_sgd`, or remove relays");
  }
  const auto& types = job.followers().types();
  const std::set<std::string> different(types.begin(), types.end());
  if (static_cast<int>(different.size()) < types.size()) {
    fail("followers.types", "names a type twice");
  }
}

void CheckMerge(const v1::JobSpec& job, const FailAt& fail) {
  const MergeSpec merge = ConvertMerge(job);
  if (merge.plain()) return;
  if (job.has_relays()) {
    fail("relays",
         "a relay forwards the sum of its workers' contributions, so the shards cannot weigh them "
         "one by one; remove relays, or merge_weights, merge_over, merge_method and late_decay");
  }
  if (merge.method == MergeMethod::kRda && merge.over == MergeOver::kSenders) {
    fail("merge_over", "rda merges whole contributions; remove merge_over or merge_method");
  }
}

}  // namespace

void CheckMode(const v1::JobSpec& job, const FailAt& fail) {
  const bool averages =
      FindByName<OuterOptimizer>(job.outer_optimizer()) == OuterOptimizer::kAverage;
  const Mode mode = *FindByName<Mode>(job.mode());
  CheckModeKeys(job, mode, fail);
  CheckFollowers(job, mode, fail);
  if (TraitsOf(mode).local_steps && averages && job.has_outer_momentum()) {
    fail("outer_momentum", "average has no momentum; remove it, or use outer_optimizer nesterov");
  }
  if (TraitsOf(mode).local_steps) CheckFragments(job, fail);
  CheckGuard(job, fail);
  CheckMerge(job, fail);
  if (job.quorum() > job.workers()) {
    fail("quorum", absl::StrCat("is ", job.quorum(), " of ", job.workers(), " workers"));
  }
  if (job.has_straggler_timeout() && !job.has_quorum()) fail("straggler_timeout", "needs a quorum");
  if (job.has_late_decay() && !job.has_quorum()) fail("late_decay", "needs a quorum");
}

}  // namespace sluice::job
