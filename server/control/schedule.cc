// SPDX-License-Identifier: Apache-2.0
#include "server/control/schedule.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "protocol/compression_plan.h"
#include "server/control/codec_rate_distortion.h"

namespace sluice::server {
namespace {

constexpr double kBitsPerByte = 8;

bool HasSparse(const std::vector<compress::CodecSpec>& codecs) {
  return std::any_of(codecs.begin(), codecs.end(), [](const compress::CodecSpec& codec) {
    return protocol::IsSparse(codec.codec);
  });
}

class SchedulePolicy : public Policy {
 public:
  SchedulePolicy(job::ScheduleSpec spec, BaseCoding base, std::vector<ControlledTensor> tensors,
                 uint32_t ranks)
      : spec_(std::move(spec)),
        base_(std::move(base)),
        tensors_(std::move(tensors)),
        ranks_(ranks) {}

  Choice First() override { return Make(0); }

  std::optional<Choice> Next(const StepMeasurements& measured) override {
    const uint64_t effective = measured.step + job::kPlanDelay;
    if (job::DensityAt(spec_, effective) == job::DensityAt(spec_, effective - 1))
      return std::nullopt;
    return Make(effective);
  }

  std::unique_ptr<Policy> Clone() const override { return std::make_unique<SchedulePolicy>(*this); }

 private:
  Coding CodingOf(const std::vector<compress::CodecSpec>& base,
                  std::optional<double> density) const {
    Coding coding;
    for (size_t i = 0; i < base.size(); ++i) {
      compress::CodecSpec codec = base[i];
      if (protocol::IsSparse(codec.codec) && density) codec.level = *density;
      if (protocol::IsSparse(codec.codec) && !density) {
        codec = {.codec = compress::CodecId::kFp16, .compensator = codec.compensator};
      }
      const absl::StatusOr<CodecRateDistortion> price = PriceOf(codec);
      const double bits = price.ok() ? price->bits : CodecRateDistortion().bits;
      coding.bytes += static_cast<double>(tensors_[i].elements) * bits / kBitsPerByte;
      coding.codecs.push_back(codec);
    }
    return coding;
  }

  Choice Make(uint64_t step) const {
    const std::optional<double> density = job::DensityAt(spec_, step);
    Choice choice;
    choice.down = CodingOf(base_.down, density);
    choice.up.assign(ranks_, CodingOf(base_.up, density));
    choice.reason = density ? absl::StrFormat("the schedule has a density of %.4g%% from here on",
                                              100 * *density)
                            : std::string("the schedule begins dense");
    return choice;
  }

  const job::ScheduleSpec spec_;
  const BaseCoding base_;
  const std::vector<ControlledTensor> tensors_;
  const uint32_t ranks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> MakeSchedulePolicy(const job::ScheduleSpec& spec,
                                                           BaseCoding base,
                                                           std::vector<ControlledTensor> tensors,
                                                           uint32_t ranks) {
  if (const absl::Status status = job::ValidateSchedule(spec); !status.ok()) return status;
  if (!HasSparse(base.up) && !HasSparse(base.down)) {
    return absl::InvalidArgumentError(
        "schedule: no tensor has a codec with a density; use topk or topk_exact");
  }
  return std::make_unique<SchedulePolicy>(spec, std::move(base), std::move(tensors), ranks);
}

}  // namespace sluice::server
