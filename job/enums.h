// SPDX-License-Identifier: Apache-2.0
// The keys of a job file whose values are a few words, as enumerations. Each has a table of its
// names. After a file is read, code compares values and not names. job/modes.h has the modes.
#pragma once

#include <array>
#include <cstdint>

#include "base/enum_names.h"

namespace sluice::job {

// Key `membership`: whether the set of workers may change during the job.
enum class Membership : uint8_t { kFixed, kElastic };
constexpr auto NamesOf(Membership) {
  return std::to_array<EnumName<Membership>>(
      {{Membership::kFixed, "fixed"}, {Membership::kElastic, "elastic"}});
}

// Key `optimizer.location`: the processes that run the job's optimizer.
enum class UpdateLocation : uint8_t { kWorkers, kShards };
constexpr auto NamesOf(UpdateLocation) {
  return std::to_array<EnumName<UpdateLocation>>(
      {{UpdateLocation::kWorkers, "workers"}, {UpdateLocation::kShards, "shards"}});
}

// Key `outer_optimizer`: how the shards apply the mean weight change of local steps.
enum class OuterOptimizer : uint8_t { kNesterov, kAverage };
constexpr auto NamesOf(OuterOptimizer) {
  return std::to_array<EnumName<OuterOptimizer>>(
      {{OuterOptimizer::kNesterov, "nesterov"}, {OuterOptimizer::kAverage, "average"}});
}

// Key `control.policy`: the rule that makes compression plans.
enum class PolicyKind : uint8_t { kFixed, kSchedule, kBandwidth, kAuto, kAccuracy };
constexpr auto NamesOf(PolicyKind) {
  return std::to_array<EnumName<PolicyKind>>({{PolicyKind::kFixed, "fixed"},
                                              {PolicyKind::kSchedule, "schedule"},
                                              {PolicyKind::kBandwidth, "bandwidth"},
                                              {PolicyKind::kAuto, "auto"},
                                              {PolicyKind::kAccuracy, "accuracy"}});
}

// Key `guard.policy`: what shards do with the contributions of a broken or hostile worker.
enum class GuardPolicy : uint8_t { kOff, kWarn, kClip, kSkip };
constexpr auto NamesOf(GuardPolicy) {
  return std::to_array<EnumName<GuardPolicy>>({{GuardPolicy::kOff, "off"},
                                               {GuardPolicy::kWarn, "warn"},
                                               {GuardPolicy::kClip, "clip"},
                                               {GuardPolicy::kSkip, "skip"}});
}

// Key `merge_weights`: how much each contribution counts.
enum class MergeWeights : uint8_t { kEqual, kTokens };
constexpr auto NamesOf(MergeWeights) {
  return std::to_array<EnumName<MergeWeights>>(
      {{MergeWeights::kEqual, "equal"}, {MergeWeights::kTokens, "tokens"}});
}

// Key `merge_over`: which contributions are in the mean of an element.
enum class MergeOver : uint8_t { kAll, kSenders };
constexpr auto NamesOf(MergeOver) {
  return std::to_array<EnumName<MergeOver>>(
      {{MergeOver::kAll, "all"}, {MergeOver::kSenders, "senders"}});
}

// Key `merge_method`.
enum class MergeMethod : uint8_t { kMean, kRda };
constexpr auto NamesOf(MergeMethod) {
  return std::to_array<EnumName<MergeMethod>>(
      {{MergeMethod::kMean, "mean"}, {MergeMethod::kRda, "rda"}});
}

// Key `precision`: the type in which a model computes.
enum class Precision : uint8_t { kFp32, kBf16, kFp16 };
constexpr auto NamesOf(Precision) {
  return std::to_array<EnumName<Precision>>(
      {{Precision::kFp32, "fp32"}, {Precision::kBf16, "bf16"}, {Precision::kFp16, "fp16"}});
}

// Key `encode_location`: the processor that encodes gradients.
enum class EncodeLocation : uint8_t { kDevice, kHost };
constexpr auto NamesOf(EncodeLocation) {
  return std::to_array<EnumName<EncodeLocation>>(
      {{EncodeLocation::kDevice, "device"}, {EncodeLocation::kHost, "host"}});
}

// Key `data.format`. kCustom means that the worker's own program reads the data.
enum class DataFormat : uint8_t {
  kIdx,
  kCifar10,
  kCifar100,
  kImageFolder,
  kText,
  kSynthetic,
  kSyntheticCifar,
  kSyntheticText,
  kCustom
};
constexpr auto NamesOf(DataFormat) {
  return std::to_array<EnumName<DataFormat>>({{DataFormat::kIdx, "idx"},
                                              {DataFormat::kCifar10, "cifar10"},
                                              {DataFormat::kCifar100, "cifar100"},
                                              {DataFormat::kImageFolder, "image_folder"},
                                              {DataFormat::kText, "text"},
                                              {DataFormat::kSynthetic, "synthetic"},
                                              {DataFormat::kSyntheticCifar, "synthetic_cifar"},
                                              {DataFormat::kSyntheticText, "synthetic_text"},
                                              {DataFormat::kCustom, "custom"}});
}

// Returns true if samples are text and not images.
constexpr bool IsText(DataFormat format) {
  return format == DataFormat::kText || format == DataFormat::kSyntheticText;
}

}  // namespace sluice::job
