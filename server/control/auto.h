// SPDX-License-Identifier: Apache-2.0
// The policy `auto`: trains as fast as the job's links and processors allow. Dense codecs are among
// its choices.
//
// The policy minimizes the predicted step time x (1 + error_price x error). The step time consists
// of the compute time and the time that communication adds (encoding, links, the shards' work,
// decoding). The error term represents the additional steps that a codec's error costs. On fast
// links, bytes cost little, so fp16 and `none` beat an expensive codec.
//
// The prediction comes from a model. The policy measures by how much steps exceed the prediction
// with the codecs in use, and remembers this excess when the codecs change. It adds the excess to
// the prediction when it compares choices. For a choice that was never in use, it assumes the
// excess of the nearest known choice. Occasionally the policy tries the choices next to the current
// one, which reveals errors of the model for those choices too.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "protocol/job_defaults.h"
#include "server/control/codec_cpu_time.h"
#include "server/control/policy.h"

namespace sluice::server {

struct AutoOptions {
  uint32_t ranks = 1;
  std::vector<ControlledTensor> tensors{};
  std::vector<CodecCpuTime> choices{};
  compress::CodecSpec first{};  // The codec that is used until the links are known.
  // As in the policy `bandwidth`.
  double overlap = protocol::defaults::kControlOverlap;
  // An error of 1 (nothing arrives in time) costs this share of additional steps. With feedback and
  // reduced momentum, even topk:1% (error 0.94) trains nearly as well as a dense codec
  // (docs/compression.md).
  double error_price = 0.3;
  bool lockstep = true;  // True if ranks wait for each other in every step.
};

// The policy reduces bytes at once if the last step cost kAutoFarOver x as much as another choice
// would have, or if each of the last two steps cost kAutoOver x as much. Otherwise the policy waits
// for kAutoDwell steps, and then changes if a choice is cheaper by kAutoWorthwhile at the rates
// that nearly all of the last steps reached. Such a change goes at most to the next larger choice,
// unless a choice beyond that gains kAutoLeap. After a rise that was too large, the policy doubles
// the wait before the next attempt, up to kAutoDwellMax. After a good rise, it halves the wait.
inline constexpr double kAutoFarOver = 2;
inline constexpr double kAutoOver = 1.2;
inline constexpr double kAutoWorthwhile = 0.015;
inline constexpr double kAutoLeap = 0.1;
inline constexpr double kAutoNoise = 2;
inline constexpr uint64_t kAutoDwell = 10;
inline constexpr uint64_t kAutoDwellMax = 160;
inline constexpr uint64_t kAutoDwellAgain = 40;
// After kAutoTry steps without a change, the policy tries a choice next to the current one for
// kAutoDwell steps. It skips a choice that is already known or is expected to cost at least
// kAutoTryCost x as much. After a trial that was no better, the policy doubles the wait before the
// next trial, up to kAutoTryMax. It remembers step times for StepMemory::kSteps steps, or until
// slow links force it to reduce bytes at once.
inline constexpr uint64_t kAutoTry = 30;
inline constexpr uint64_t kAutoTryMax = 960;
inline constexpr double kAutoTryCost = 1.25;

// Fails with INVALID_ARGUMENT if there is no rank, tensor or choice, if a codec's price is not
// known, or if the overlap, a cost or the error price is out of range. The message names the fault.
absl::StatusOr<std::unique_ptr<Policy>> MakeAutoPolicy(const AutoOptions& options);

}  // namespace sluice::server
