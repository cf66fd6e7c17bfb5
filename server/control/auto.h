// The policy `auto`: the fastest training that the job's links and processors allow, dense among
// the choices.
//
// What it minimizes is the predicted time of a step x (1 + error_price x error): the time of
// computing and of what communication adds to it (encoding, links, the shards' work, decoding),
// and how many more steps a codec's error costs. A codec that is dear to compute loses on fast
// links to fp16 and `none`, whose bytes cost little there.
//
// The prediction is a model's. What steps took beyond it is measured for what is in use, and
// remembered of what was: by that choices are compared. What was never in use is taken to be off by
// as much as what is; so that a model that is wrong elsewhere shows, the choices next to the one in
// use are tried now and then.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/control/codec_cost.h"
#include "server/control/policy.h"

namespace sluice::server {

struct AutoOptions {
  uint32_t ranks = 1;
  std::vector<ControlledTensor> tensors{};
  std::vector<CodecCost> choices{};
  compress::CodecSpec first{};  // Until links are known.
  double overlap = 0.7;         // As of the policy `bandwidth`.
  // Error 1 (nothing arrives in time) is as bad as so many more steps. With feedback and lowered
  // momentum even topk:1% (0.94) trains nearly as dense does (docs/compression.md).
  double error_price = 0.3;
  bool lockstep = true;  // Ranks wait for each other in every step.
};

// Changes at once if the last step was kFarOver x what another choice would have taken, or the last
// two kOver, and then to fewer bytes alone. Else after kDwell steps, if it wins kWorthwhile by what
// nearly all of the last steps had, and to the next larger choice at most, unless one beyond wins
// kLeap. If that was too much it waits twice as long before the next attempt, up to kDwellMax, and
// half as long where it was good.
inline constexpr double kAutoFarOver = 2;
inline constexpr double kAutoOver = 1.2;
inline constexpr double kAutoWorthwhile = 0.015;
inline constexpr double kAutoLeap = 0.1;
inline constexpr double kAutoNoise = 2;
inline constexpr uint64_t kAutoDwell = 10;
inline constexpr uint64_t kAutoDwellMax = 160;
inline constexpr uint64_t kAutoDwellAgain = 40;
// A choice next to the one in use is tried for kDwell steps after kTry steps without a change,
// unless it is known or reckoned to cost kTryCost as much; twice as long after one that was no
// better, up to kTryMax. What steps took is remembered for
// StepMemory::kSteps steps, or until an emergency.
inline constexpr uint64_t kAutoTry = 30;
inline constexpr uint64_t kAutoTryMax = 960;
inline constexpr double kAutoTryCost = 1.25;

// INVALID_ARGUMENT names what is wrong: no rank, tensor or choice, a codec whose price is not
// known, an overlap, a cost or an error price that cannot be.
absl::StatusOr<std::unique_ptr<Policy>> MakeAutoPolicy(const AutoOptions& options);

}  // namespace sluice::server
