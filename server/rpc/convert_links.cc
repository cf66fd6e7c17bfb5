#include "server/rpc/convert_links.h"

#include <cmath>

namespace sluice::server {
namespace {

double Figure(double value) { return value > 0 && std::isfinite(value) ? value : 0; }

template <typename Message>
void EstimateToProto(const LinkFigures& link, Message* out) {
  out->set_up_bytes_per_second(link.up_rate);
  out->set_up_latency_seconds(link.up_latency_s);
  out->set_down_bytes_per_second(link.down_rate);
  out->set_down_latency_seconds(link.down_latency_s);
}

}  // namespace

void LinkToProto(const LinkFigures& link, v1::LinkFigures* out) {
  EstimateToProto(link, out);
  out->set_compute_late_seconds(link.compute_late_s);
  out->set_network_late_seconds(link.network_late_s);
}

void LinkToProto(const LinkFigures& link, v1::LinkStatus* out) { EstimateToProto(link, out); }

LinkFigures LinkFromProto(const v1::LinkFigures& link) {
  return {.up_rate = Figure(link.up_bytes_per_second()),
          .up_latency_s = Figure(link.up_latency_seconds()),
          .down_rate = Figure(link.down_bytes_per_second()),
          .down_latency_s = Figure(link.down_latency_seconds()),
          .compute_late_s = Figure(link.compute_late_seconds()),
          .network_late_s = Figure(link.network_late_seconds())};
}

}  // namespace sluice::server
