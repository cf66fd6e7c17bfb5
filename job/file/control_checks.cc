// SPDX-License-Identifier: Apache-2.0
#include "job/file/control_checks.h"

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/codec_spec.h"
#include "compress/codec_table.h"
#include "job/control_spec.h"
#include "job/file/job_conversion.h"
#include "job/modes.h"
#include "protocol/compression_plan.h"

namespace sluice::job {
namespace {

void CheckCandidates(const v1::ControlSpec& control, const FailAt& fail) {
  std::set<std::string> seen;
  for (int i = 0; i < control.candidates_size(); ++i) {
    const std::string path = absl::StrCat("control.candidates[", i, "]");
    const absl::StatusOr<compress::CodecSpec> codec =
        compress::ParseCodecSpec(control.candidates(i));
    Check(codec.ok(), "the mapper keeps canonical codec specs");
    if (codec->compensator != compress::CompensatorSpec()) {
      fail(path, "`compression` sets the compensator; give the codec without one");
    } else if (!protocol::MayChange(*codec)) {
      fail(path, absl::StrCat(control.candidates(i), ": no plan can choose it; use some of ",
                              compress::CodecsOfPlans()));
    } else if (!seen.insert(control.candidates(i)).second) {
      fail(path, absl::StrCat(control.candidates(i), " is given twice"));
    }
  }
}

// Checks that the keys fit the form of the schedule and that none is missing, then checks the
// schedule itself.
void CheckSchedule(const v1::ControlSpec& control, const FailAt& fail) {
  if (FindByName<PolicyKind>(control.policy()) != PolicyKind::kSchedule ||
      control.schedule().empty())
    return;
  struct Key {
    absl::string_view name;
    bool given, taken;
  };
  const std::string& form = control.schedule();
  const bool goes = form == "exponential" || form == "cyclic";
  bool fits = true;
  for (const Key& key :
       {Key{"start", control.has_start(), goes},
        Key{"end", control.has_end(), goes || form == "constant"},
        Key{"steps", control.has_steps(), goes}, Key{"stages", control.has_stages(), goes},
        Key{"pieces", control.pieces_size() > 0, form == "piecewise"}}) {
    if (key.given == key.taken) continue;
    fits = false;
    fail(absl::StrCat("control.", key.name),
         key.taken ? absl::StrCat("missing; schedule ", form, " needs it")
                   : absl::StrCat("schedule ", form, " takes none; remove it"));
  }
  if (!fits) return;
  const absl::Status valid = ValidateSchedule(ConvertControl(control).schedule);
  if (!valid.ok()) fail("control.schedule", valid.message());
}

// Requires one density in both directions, and a reference curve for the tests.
void CheckAccuracy(const v1::JobSpec& job, const FailAt& fail) {
  const v1::ControlSpec& control = job.control();
  if (FindByName<PolicyKind>(control.policy()) != PolicyKind::kAccuracy) return;
  if (control.has_reference() == (control.reference_points_size() > 0)) {
    fail("control.reference",
         control.has_reference()
             ? "is given together with reference_points; remove one of them"
             : "missing; give the scalars.csv of a dense run, or reference_points");
  } else if (!control.has_reference()) {
    const absl::Status valid = ValidateCurve(ConvertControl(control).reference);
    if (!valid.ok()) fail("control.reference_points", valid.message());
  } else if (control.reference().empty()) {
    fail("control.reference", "is empty; give the scalars.csv of a dense run");
  }
  if (TraitsOf(*FindByName<Mode>(job.mode())).local_steps) {
    fail("control.policy",
         "accuracy compares tests by training steps, and plans of local_sgd count exchanges; use "
         "mode sync");
  }
  const absl::StatusOr<compress::CodecSpec> up =
      compress::ParseCodecSpec(job.compression().uplink());
  const absl::StatusOr<compress::CodecSpec> down =
      compress::ParseCodecSpec(job.compression().downlink());
  Check(up.ok() && down.ok(), "the mapper keeps canonical codec specs");
  if (!protocol::IsSparse(up->codec)) {
    fail(
        "control.policy",
        absl::StrCat("accuracy sets the density of topk and topk_exact, but compression.uplink is ",
                     job.compression().uplink()));
  } else if (protocol::IsSparse(down->codec) && down->level != up->level) {
    fail("control.policy",
         absl::StrCat(
             "accuracy sets one density in both directions, but compression begins with ",
             job.compression().uplink(), " up and ", job.compression().downlink(),
             " down; set both to the same value, or use a downlink codec without a density"));
  }
}

// These policies compare the time of an exchange of the whole model with the time of its steps.
void CheckFragments(const v1::JobSpec& job, const FailAt& fail) {
  if (job.fragments() < 2 && job.fragment_delay() == 0) return;
  if (!job.has_control() || !ConvertControl(job.control()).measures()) return;
  fail("control.policy", absl::StrCat(job.control().policy(),
                                      " cannot measure exchanges of fragments or exchanges that "
                                      "overlap with training; use fixed or schedule"));
}

}  // namespace

void CheckControl(const v1::JobSpec& job, const FailAt& fail) {
  CheckCandidates(job.control(), fail);
  CheckSchedule(job.control(), fail);
  CheckAccuracy(job, fail);
  CheckFragments(job, fail);
}

}  // namespace sluice::job
