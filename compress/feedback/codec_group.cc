// SPDX-License-Identifier: Apache-2.0
#include "compress/feedback/codec_group.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compress/codec_table.h"
#include "compress/feedback/dgc.h"
#include "compress/feedback/difference.h"

namespace sluice::compress {
namespace {

// Limit for the factor that corrects the density. A threshold from the previous step lets too many
// elements through if gradients are noisy, and too few if feedback has accumulated values just
// below the threshold. The correction removes this bias within a few dozen steps, so that the mean
// share of kept elements follows the density.
//
// The correction changes the density for which the histogram computes a threshold. This has a gain
// of about one for any distribution; a correction of the threshold itself would not.
constexpr double kLargestCorrection = 4;
void Correct(double wanted, CodecGroup* group) {
  constexpr double kGain = 0.05;
  // A step that keeps far too many elements counts as at most five times the wanted number.
  constexpr double kWorst = -4;
  const double target = std::max(wanted * static_cast<double>(group->counts.elements), 1.0);
  const double error = std::max(1 - static_cast<double>(group->counts.kept) / target, kWorst);
  group->correction = static_cast<float>(std::clamp(group->correction * (1 + kGain * error),
                                                    1 / kLargestCorrection, kLargestCorrection));
}

// Names in the saved state. They must differ from the names of compensators.
constexpr char kThreshold[] = "threshold";
constexpr char kCorrection[] = "correction";

absl::Status CheckSaved(const SavedState& saved, size_t index) {
  const auto in_range = [&](const char* name, double least, double most) {
    const auto found = saved.find(name);
    return found != saved.end() && found->second.size() == 1 && found->second[0] >= least &&
           found->second[0] <= most;
  };
  if (saved.size() == 2 && in_range(kThreshold, 0, std::numeric_limits<float>::max()) &&
      in_range(kCorrection, 1 / kLargestCorrection, kLargestCorrection)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "saved group ", index, " must have one threshold and one correction from ",
      1 / kLargestCorrection, " to ", kLargestCorrection, "; use an earlier checkpoint"));
}

}  // namespace

CodecGroup::CodecGroup(const ChunkConfig& chunk)
    : spec(chunk.spec), tensor(chunk.tensor), codec(MakeCodec(chunk.spec)) {}

bool CodecGroup::Has(const ChunkConfig& chunk) const {
  return spec == chunk.spec && (!chunk.spec.has(kTensorScope) || tensor == chunk.tensor);
}

double CodecGroup::DensityAt(uint64_t step) const {
  return WarmupDensity(codec->density(), step, spec.compensator.warmup);
}

void GroupCounts::Add(const GroupCounts& other) {
  if (other.magnitudes.total() > 0) magnitudes.Add(other.magnitudes);
  kept += other.kept;
  elements += other.elements;
}

void GroupCounts::Clear() {
  if (magnitudes.total() > 0) magnitudes.Clear();
  kept = 0;
  elements = 0;
}

void CodecGroup::EndStep(uint64_t step) {
  if (counts.magnitudes.total() > 0) {
    // In the first step, each chunk took its own threshold, so there is nothing to correct.
    if (threshold > 0) Correct(DensityAt(step), this);
    const double density = std::min(DensityAt(step + 1) * correction, 1.0);
    const float next = counts.magnitudes.ThresholdFor(density);
    // 0 means that almost all values were zero. The threshold then stays the same, so that the next
    // step does not let more values through.
    if (next > 0) threshold = next;
    // Unlike a residual, a difference from a memory does not grow while it waits. If nothing
    // passed, the next threshold must let the largest value pass.
    const float largest = counts.magnitudes.ThresholdForLargest();
    if (HasMemory(spec.compensator.id) && counts.kept == 0 && largest > 0) {
      threshold = std::min(threshold, largest);
    }
  }
  counts.Clear();
}

SavedState CodecGroup::Save() const {
  return {{kThreshold, {threshold}}, {kCorrection, {correction}}};
}

void CodecGroup::Restore(const SavedState& saved) {
  threshold = saved.at(kThreshold)[0];
  correction = saved.at(kCorrection)[0];
  counts.Clear();
}

absl::Status CheckSavedGroups(absl::Span<const SavedState> saved) {
  for (size_t i = 0; i < saved.size(); ++i) {
    if (absl::Status fits = CheckSaved(saved[i], i); !fits.ok()) return fits;
  }
  return absl::OkStatus();
}

void RestoreGroups(absl::Span<const SavedState> saved, absl::Span<CodecGroup> groups) {
  const SavedState at_the_start = {{kThreshold, {0}}, {kCorrection, {1}}};
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].Restore(saved.empty() ? at_the_start : saved[i]);
  }
}

}  // namespace sluice::compress
