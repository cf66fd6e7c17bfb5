// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/shard_memory.h"

#include "compress/codec_table.h"

namespace sluice::planning {
namespace {

constexpr double kProgram = 22e6;  // Measured.
constexpr double kStragglerResults = 256.0 * (1 << 20);

// Returns the bytes of an element's state, for contributions in this codec.
double CodecStateBytes(const compress::CodecSpec& spec, double senders) {
  double bytes = 0;
  if (spec.codec == compress::CodecId::kIntSum) bytes += 2;
  if (spec.codec == compress::CodecId::kLsh) bytes += 4 * senders;
  if (spec.compensator.id == compress::CompensatorId::kEf21 ||
      spec.compensator.id == compress::CompensatorId::kDiana) {
    bytes += 4;
  }
  return bytes;
}

}  // namespace

ShardMemory MemoryOf(const Scenario& scenario, const Traffic& traffic) {
  const double elements = scenario.model.elements / scenario.shards;
  const double senders = Senders(scenario);
  const bool sparse = compress::TraitsOf(scenario.up.codec, scenario.up.options).sparse;
  ShardMemory memory;
  memory.program = kProgram;
  memory.sums = (sparse ? 6 : 8) * elements;
  if (scenario.optimizer_on_shards) {
    memory.parameters = (8 + scenario.optimizer_state_bytes) * elements;
  }
  memory.codec = CodecStateBytes(scenario.up, senders) * elements;
  memory.waiting = senders * traffic.up / scenario.shards;
  if (scenario.checkpoints) memory.results = scenario.replay_limit_bytes;
  if (scenario.quorum) memory.results += kStragglerResults;
  if (scenario.checkpoints) memory.snapshot = 8 * elements;
  return memory;
}

}  // namespace sluice::planning
