// SPDX-License-Identifier: Apache-2.0
// Conversion of workers' link measurements. Servers and workers use it.
#pragma once

#include "protocol/link_meter.h"
#include "sluice/v1/parameter_shard.pb.h"

namespace sluice::protocol {

void LinkReportToProto(const LinkReport& report, v1::LinkReport* message);

// Converts a report. Drops impossible values (too many periods, durations of days) and keeps the
// others.
LinkReport LinkReportFromProto(const v1::LinkReport& message);

}  // namespace sluice::protocol
