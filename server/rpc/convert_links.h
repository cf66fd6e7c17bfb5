// Figures of links to messages and back; for convert*.cc.
#pragma once

#include "server/coordinator/link_book.h"
#include "sluice/v1/coordinator.pb.h"
#include "sluice/v1/shard_control.pb.h"

namespace sluice::server {

void LinkToProto(const LinkFigures& link, v1::LinkFigures* out);
void LinkToProto(const LinkFigures& link, v1::LinkStatus* out);
// Whatever is no number above 0 is 0.
LinkFigures LinkFromProto(const v1::LinkFigures& link);

}  // namespace sluice::server
