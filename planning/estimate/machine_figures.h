// SPDX-License-Identifier: Apache-2.0
// MachineFigures: the speed of a machine's processors in an exchange, and the bytes of each codec.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compress/codec_spec.h"

namespace sluice::planning {

// Averages over the elements of large tensors, for one thread.
struct CodecFigures {
  double bits = 32;      // On the wire, per element, with the headers of frames.
  double encode_ns = 0;  // Encoding one element takes this, with feedback and checksum.
  double add_ns = 0;     // To check and decode an element and to add it to a sum or to a parameter.
};

// Processor times are those of one core.
struct MachineFigures {
  uint32_t cores = 2;
  double step_ms = 0;    // An exchange with one tiny tensor takes this: threads wake each other.
  double bundle_us = 0;  // Each of a worker and a shard spends this on a bundle's messages.
  double tensor_us = 0;  // A worker spends this on a tensor.
  double worker_ns = 0;  // A worker spends this to send or receive a byte.
  double shard_ns = 0;   // A shard spends this to send or receive a byte.
  // By canonical spec (compress::ToString).
  std::map<std::string, CodecFigures> codecs{};
};

// The figures of the machine with 2 cores that docs/performance.md describes. bench/README.md names
// the measurements.
MachineFigures UsualFigures();

// Returns the measured figures of the codec. If the codec was measured only at other levels, scales
// the codec table's price (compress::CodecPrice) by the nearest measured level. Compensators do not
// change figures. Fails with INVALID_ARGUMENT for a codec with neither figures nor a price; the
// message tells how to measure it.
absl::StatusOr<CodecFigures> FiguresOf(const MachineFigures& machine,
                                       const compress::CodecSpec& spec);

// {schema: 1, cores, step_ms, bundle_us, tensor_us, worker_ns_per_byte, shard_ns_per_byte,
// codecs: {SPEC: {bits, encode_ns, add_ns}}}.
std::string MachineFiguresJson(const MachineFigures& machine);

// Fails with INVALID_ARGUMENT if the text is not such an object, a figure is missing, negative or
// above its limit, or a codec's spec is invalid. The message names the key.
absl::StatusOr<MachineFigures> ParseMachineFigures(absl::string_view text);

}  // namespace sluice::planning
