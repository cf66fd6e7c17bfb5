// SPDX-License-Identifier: Apache-2.0
// MachineCosts: the processor time that a simulated machine takes for Sluice's own work. Plain
// data.
#pragma once

namespace sluice::planning {

struct MachineCosts {
  // Multiplies the times per element in the table of codecs (compress::CodecPrice), which are those
  // of one thread of a current server.
  double codec_scale = 1;
  // A codec without a price of its own costs this per element.
  double encode_ns = 1;
  double add_ns = 0.5;
  // gRPC and the kernel spend this on each message, at its sender and at its receiver.
  // docs/performance.md has the measured times of a shard.
  double message_us = 30;
  double byte_ns = 0.3;  // Per byte of a message, at its sender and at its receiver.
};

}  // namespace sluice::planning
