// SPDX-License-Identifier: Apache-2.0
#include "compress/feedback/dgc.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/float_bits.h"
#include "compress/coding/accumulator.h"
#include "compress/frame.h"
#include "compress/simd/compensate.h"

namespace sluice::compress {
namespace {

constexpr float kNormMemory = 0.9f;

class Dgc final : public Compensator {
 public:
  Dgc(const CompensatorSpec& spec, size_t count)
      : momentum_(static_cast<float>(spec.level)),
        clip_(static_cast<float>(spec.clip)),
        velocity_(count),
        residual_(count) {}

  absl::Status Check(absl::Span<const float> gradient) const override {
    if (gradient.size() != residual_.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "gradient has ", gradient.size(), " elements, the chunk has ", residual_.size()));
    }
    absl::Status finite = CheckAccumulator(gradient, {});
    if (!finite.ok()) return finite;
    float norm = 0;
    const float factor = Factor(gradient, &norm);
    if (StepMomentum(momentum_, factor, gradient.data(), velocity_.data(), residual_.data(),
                     residual_.size(), nullptr) < kInfinityBits) {
      return absl::OkStatus();
    }
    size_t i = 0;
    while (IsFinite(momentum_ * velocity_[i] + factor * gradient[i] + residual_[i])) ++i;
    return absl::InvalidArgumentError(absl::StrCat("momentum plus residual is not finite: element ",
                                                   i, ": gradient ", gradient[i], ", momentum ",
                                                   velocity_[i], ", residual ", residual_[i]));
  }

  absl::Status Encode(const Codec& codec, EncodeInput input,
                      std::vector<std::byte>* frame) override {
    absl::Status fits = CheckFrameSize(codec, residual_.size(), input.rows);
    if (!fits.ok()) return fits;
    EncodeScratch own;
    if (input.scratch == nullptr) input.scratch = &own;
    float norm = 0;
    const float factor = Factor(input.gradient, &norm);
    if (clip_ > 0 && norm > 0) Remember(norm * factor);
    StepMomentum(momentum_, factor, input.gradient.data(), velocity_.data(), residual_.data(),
                 residual_.size(), velocity_.data());
    input.gradient = velocity_;
    input.residual = absl::MakeSpan(residual_);
    input.finite = true;
    const size_t at = frame->size();
    absl::Status encoded = EncodeFrame(codec, input, frame);
    sluice::Check(encoded.ok(), "a checked gradient can be encoded");
    Mask(absl::MakeConstSpan(*frame).subspan(at), &input.scratch->compensated);
    return absl::OkStatus();
  }

  absl::Status ReturnFrame(absl::Span<const std::byte> frame) override {
    return DecodeAddFrame(frame, absl::MakeSpan(residual_));
  }

  absl::Span<const float> residual() const override { return residual_; }

  std::vector<StateField> State() override {
    std::vector<StateField> fields = {{kResidualState, &residual_, residual_.size()},
                                      {"momentum", &velocity_, residual_.size()}};
    if (clip_ > 0) fields.push_back({"norm", &usual_norm_, 1});
    return fields;
  }

 private:
  // Returns the factor by which the gradient is multiplied. Sets `*norm` to the gradient's norm if
  // clipping is enabled.
  float Factor(absl::Span<const float> gradient, float* norm) const {
    if (clip_ == 0) return 1;
    const double exact = std::sqrt(SumOfSquares(gradient.data(), gradient.size()));
    *norm = static_cast<float>(std::min(exact, double{std::numeric_limits<float>::max()}));
    if (usual_norm_[0] == 0) return 1;
    const double largest = double{clip_} * usual_norm_[0];
    return exact <= largest ? 1 : static_cast<float>(largest / exact);
  }

  void Remember(float norm) {
    float& usual = usual_norm_[0];
    usual = usual == 0 ? norm : kNormMemory * usual + (1 - kNormMemory) * norm;
  }

  // Applies factor masking with the decoded frame.
  void Mask(absl::Span<const std::byte> frame, std::vector<float>* sent) {
    sent->assign(residual_.size(), 0.0f);
    FrameFormat(frame).decode_add(FramePayload(frame), absl::MakeSpan(*sent));
    ClearWhereSent(sent->data(), sent->size(), velocity_.data());
  }

  const float momentum_;
  const float clip_;  // 0 if clipping is disabled.
  std::vector<float> velocity_;
  std::vector<float> residual_;
  std::vector<float> usual_norm_ = {0.0f};  // One number; 0 while it is unknown.
};

}  // namespace

std::unique_ptr<Compensator> MakeDgc(const CompensatorSpec& spec, size_t count) {
  return std::make_unique<Dgc>(spec, count);
}

double WarmupDensity(double density, uint64_t step, uint32_t warmup) {
  if (warmup == 0 || step > warmup || density >= kWarmupDensity) return density;
  // Raises density / kWarmupDensity to the power of the elapsed fraction of the warm-up, one bit of
  // the exponent at a time. IEEE square roots are the same on every machine; pow() is not.
  const uint64_t passed = ((std::max<uint64_t>(step, 1) - 1) << 32) / warmup;
  double root = density / kWarmupDensity, power = 1;
  for (int bit = 31; bit >= 0; --bit) {
    root = std::sqrt(root);
    if ((passed >> bit & 1) != 0) power *= root;
  }
  return kWarmupDensity * power;
}

}  // namespace sluice::compress
