// SPDX-License-Identifier: Apache-2.0
// Traffic: the bytes of an exchange on each kind of link. Sizes are those of frames; PayloadShare
// turns them into time on a link.
#pragma once

#include "absl/status/statusor.h"
#include "compress/codec_spec.h"
#include "planning/estimate/machine_figures.h"
#include "planning/estimate/scenario.h"

namespace sluice::planning {

// The share of a link's rate that TCP on Ethernet leaves to payload (bench/README.md).
inline constexpr double kPayloadShare = 0.956;

// Bytes of one exchange. One exchange covers one fragment.
struct Traffic {
  double elements = 0;  // Elements of an exchange.
  double up = 0;        // From a sender (a worker, or a site's relay) to all shards together.
  double down = 0;      // From all shards together to a sender.
  double relay_up = 0;  // From a worker to its relay. 0 without relays.
  double relay_down = 0;
  // The busiest link of a worker or a site: bytes that leave it and that reach it, by kind.
  double link_out_up = 0;    // Contributions of its senders.
  double link_out_down = 0;  // Results of its shards. 0 if shards have machines of their own.
  double link_in_up = 0;
  double link_in_down = 0;
  // The busiest link of a shard with a machine of its own; otherwise 0.
  double shard_in = 0;
  double shard_out = 0;
  // Bytes that leave all machines or, if there are sites, all sites and machines of shards.
  double egress = 0;
};

// Returns the bytes of `elements` elements of the model, whose small tensors travel as fp16.
absl::StatusOr<double> BytesOf(const compress::CodecSpec& spec, const MachineFigures& machine,
                               const ModelSize& model, double elements);

// Passes on the errors of FiguresOf. `scenario` must be valid.
absl::StatusOr<Traffic> TrafficOf(const Scenario& scenario, const MachineFigures& machine);

}  // namespace sluice::planning
