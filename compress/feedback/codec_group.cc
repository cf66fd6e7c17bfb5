#include "compress/feedback/codec_group.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compress/codec_table.h"
#include "compress/feedback/dgc.h"
#include "compress/feedback/difference.h"

namespace sluice::compress {
namespace {

// A threshold that is one step late lets through more than its density where gradients are noisy,
// and less where feedback has piled values up just below it. This takes the bias out over some tens
// of steps, so that the mean of what is kept follows the density, by asking the histogram for
// another one: that has a gain of about one, whatever the distribution, which a correction of the
// threshold itself would not have.
constexpr double kLargestCorrection = 4;
void Correct(double wanted, CodecGroup* group) {
  constexpr double kGain = 0.05;
  constexpr double kWorst = -4;  // A step far above counts as five times its share.
  const double target = std::max(wanted * static_cast<double>(group->elements), 1.0);
  const double error = std::max(1 - static_cast<double>(group->kept) / target, kWorst);
  group->correction = static_cast<float>(std::clamp(group->correction * (1 + kGain * error),
                                                    1 / kLargestCorrection, kLargestCorrection));
}

// In what is saved. Compensators have other names.
constexpr char kThreshold[] = "threshold";
constexpr char kCorrection[] = "correction";

}  // namespace

CodecGroup::CodecGroup(const ChunkConfig& chunk)
    : spec(chunk.spec), tensor(chunk.tensor), codec(MakeCodec(chunk.spec)) {}

bool CodecGroup::Has(const ChunkConfig& chunk) const {
  return spec == chunk.spec && (!chunk.spec.has(kTensorScope) || tensor == chunk.tensor);
}

double CodecGroup::DensityAt(uint64_t step) const {
  return WarmupDensity(codec->density(), step, spec.compensator.warmup);
}

void CodecGroup::ForgetStep() {
  if (magnitudes.total() > 0) magnitudes.Clear();
  kept = 0;
  elements = 0;
}

void CodecGroup::EndStep(uint64_t step) {
  if (magnitudes.total() > 0) {
    // The first step's thresholds are each chunk's own.
    if (threshold > 0) Correct(DensityAt(step), this);
    const double density = std::min(DensityAt(step + 1) * correction, 1.0);
    const float next = magnitudes.ThresholdFor(density);
    // 0: hardly anything was not zero. What passed before such a step should pass after it, no
    // more.
    if (next > 0) threshold = next;
    // Nor does what waits for a memory grow by waiting, as a residual does: where nothing passed,
    // the largest must the next time.
    const float largest = magnitudes.ThresholdForLargest();
    if (HasMemory(spec.compensator.id) && kept == 0 && largest > 0) {
      threshold = std::min(threshold, largest);
    }
  }
  ForgetStep();
}

SavedState CodecGroup::Save() const {
  return {{kThreshold, {threshold}}, {kCorrection, {correction}}};
}

absl::Status CodecGroup::CheckSaved(const SavedState& saved, size_t index) {
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
      "saved group ", index, " is not one threshold and one correction of ", 1 / kLargestCorrection,
      " to ", kLargestCorrection, "; use an earlier checkpoint"));
}

void CodecGroup::Restore(const SavedState& saved) {
  threshold = saved.at(kThreshold)[0];
  correction = saved.at(kCorrection)[0];
  ForgetStep();
}

}  // namespace sluice::compress
