// Plan: how every tensor is coded from some step on, for every rank, and why. Made in one place,
// the same for everybody; frames say themselves how they are coded, so that a receiver needs none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compress/codec_spec.h"
#include "job/control_spec.h"

namespace sluice::server {

// What one sender does: a rank up, or the shards down.
struct Coding {
  std::vector<compress::CodecSpec> codecs{};  // By tensor.
  double bytes = 0;                           // Of a step, as expected.

  friend bool operator==(const Coding&, const Coding&) = default;
};

// What a policy wants.
struct Choice {
  std::vector<Coding> up{};  // By rank.
  Coding down{};
  std::string reason{};  // A sentence with the figures that led to it.
};

struct Plan {
  uint64_t id = 0;  // From 1; each plan's is larger than that before it.
  uint64_t effective_step = 0;
  Choice choice{};
  double momentum = 0;  // Of the job's optimizer from that step on (job/momentum.h).
};

// What control has to know of a tensor.
struct ControlledTensor {
  uint64_t elements = 0;
  double weight = 1;       // Of its error, against that of others.
  bool compressed = true;  // False: fp16 always, as small tensors are.
};

}  // namespace sluice::server
