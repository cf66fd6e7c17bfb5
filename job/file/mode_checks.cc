#include "job/file/mode_checks.h"

#include "absl/strings/str_cat.h"
#include "job/modes.h"
#include "job/support.h"

namespace sluice::job {

// Checks the keys that are valid in only one mode.
void CheckMode(const v1::JobSpec& job, const FailAt& fail) {
  struct Key {
    absl::string_view name;
    Mode mode;
    bool given, needed;
  };
  const bool averages =
      FindByName<OuterOptimizer>(job.outer_optimizer()) == OuterOptimizer::kAverage;
  const Mode mode = *FindByName<Mode>(job.mode());
  for (const Key& key :
       {Key{"staleness", Mode::kSsp, job.has_staleness(), true},
        Key{"local_steps", Mode::kLocalSgd, job.has_local_steps(), true},
        Key{"outer_optimizer", Mode::kLocalSgd, job.has_outer_optimizer(), false},
        Key{"outer_lr", Mode::kLocalSgd, job.has_outer_lr(), false},
        Key{"outer_momentum", Mode::kLocalSgd, job.has_outer_momentum(), false},
        Key{"quorum", Mode::kSync, job.has_quorum(), false},
        Key{"straggler_timeout", Mode::kSync, job.has_straggler_timeout(), false}}) {
    if (key.given && mode != key.mode) {
      fail(key.name, absl::StrCat("is a key of mode ", NameOf(key.mode), "; this job has mode ",
                                  job.mode(), "; remove it"));
    } else if (!key.given && key.needed && mode == key.mode) {
      fail(key.name, absl::StrCat("missing; mode ", NameOf(key.mode), " needs it"));
    }
  }
  if (job.has_staleness_aware_lr() && InLockstep(mode)) {
    fail("staleness_aware_lr", absl::StrCat("is a key of modes async and ssp; this job has mode ",
                                            job.mode(), "; remove it"));
  }
  if (mode == Mode::kLocalSgd && averages && job.has_outer_momentum()) {
    fail("outer_momentum", "average has no momentum; remove it, or use outer_optimizer nesterov");
  }
  if (job.quorum() > job.workers()) {
    fail("quorum", absl::StrCat("is ", job.quorum(), " of ", job.workers(), " workers"));
  }
  if (job.has_straggler_timeout() && !job.has_quorum()) fail("straggler_timeout", "needs a quorum");
}

}  // namespace sluice::job
