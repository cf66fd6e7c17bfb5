// SPDX-License-Identifier: Apache-2.0
// PolicyDecision: the coding of every tensor for every rank from a given step on, and the reason.
// One process decides for all parties. A receiver needs no plan, because each frame describes its
// own coding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compress/codec_spec.h"
#include "job/control_spec.h"

namespace sluice::server {

// Coding of one sender: a rank for the uplink, or the shards for the downlink.
struct Coding {
  std::vector<compress::CodecSpec> codecs{};  // By tensor.
  double bytes = 0;                           // Expected bytes per step.

  friend bool operator==(const Coding&, const Coding&) = default;
};

// A policy's decision.
struct Choice {
  std::vector<Coding> up{};  // By rank.
  Coding down{};
  std::string reason{};  // A sentence with the figures that led to the choice.
};

struct PolicyDecision {
  uint64_t id = 0;  // From 1; later plans have larger ids.
  uint64_t effective_step = 0;
  Choice choice{};
  // The job's optimizer uses this momentum from effective_step on (job/momentum.h).
  double momentum = 0;
};

// The properties of a tensor that control needs.
struct ControlledTensor {
  uint64_t elements = 0;
  double weight = 1;       // Weight of the tensor's error relative to other tensors.
  bool compressed = true;  // If false, the tensor is always fp16, as small tensors are.
};

}  // namespace sluice::server
