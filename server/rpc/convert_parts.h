// What the messages of workers and those of shards have in common; for convert*.cc.
#pragma once

#include <cstddef>
#include <string>

#include "protocol/layout.h"
#include "server/coordinator/coordinator.h"
#include "sluice/v1/common.pb.h"

namespace sluice::server {

// Of a worker's parts of a checkpoint. More than it has: its state and, of rank 0, files beside it.
inline constexpr int kPartsMax = 16;

// A reason, a host or an address, cut to what somebody reads.
std::string Shortened(const std::string& text);
void LayoutToProto(const protocol::LayoutParameters& layout, v1::LayoutParameters* out);
// Of seconds, or of whatever cannot be negative: what cannot be is 0.
double AmountFromProto(double amount);

void WaitToProto(const DiskWait& wait, v1::DiskWait* out);
DiskWait WaitFromProto(const v1::DiskWait& wait);

}  // namespace sluice::server
