// What workers measure of links, as messages: the same for servers and workers.
#pragma once

#include "protocol/link_meter.h"
#include "sluice/v1/parameter_shard.pb.h"

namespace sluice::protocol {

void LinkReportToProto(const LinkReport& report, v1::LinkReport* message);

// Of what cannot be (more periods than there may be, times of days) nothing is left; the rest
// counts.
LinkReport LinkReportFromProto(const v1::LinkReport& message);

}  // namespace sluice::protocol
