#include "job/file/mode_checks.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "job/file/schema.h"
#include "job/modes.h"

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

}  // namespace

void CheckMode(const v1::JobSpec& job, const FailAt& fail) {
  const bool averages =
      FindByName<OuterOptimizer>(job.outer_optimizer()) == OuterOptimizer::kAverage;
  const Mode mode = *FindByName<Mode>(job.mode());
  CheckModeKeys(job, mode, fail);
  if (TraitsOf(mode).local_steps && averages && job.has_outer_momentum()) {
    fail("outer_momentum", "average has no momentum; remove it, or use outer_optimizer nesterov");
  }
  if (job.quorum() > job.workers()) {
    fail("quorum", absl::StrCat("is ", job.quorum(), " of ", job.workers(), " workers"));
  }
  if (job.has_straggler_timeout() && !job.has_quorum()) fail("straggler_timeout", "needs a quorum");
}

}  // namespace sluice::job
