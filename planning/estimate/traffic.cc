// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/traffic.h"

#include <algorithm>
#include <cmath>

namespace sluice::planning {
namespace {

constexpr double kHalfBits = 16;

// Returns the share of the shards that run on the machines of one link.
double ShardsPerLink(const Scenario& scenario) {
  if (scenario.placement != Placement::kWithWorkers) return 0;
  const double shards = scenario.shards;
  return std::ceil(shards / Links(scenario)) / shards;
}

// Adds the bytes of the links between senders and shards.
void AddLinks(const Scenario& scenario, Traffic* traffic) {
  const double senders = Senders(scenario);
  const double here = SendersPerLink(scenario);
  const double shards_here = ShardsPerLink(scenario);
  const double others = senders - here;
  traffic->link_out_up = here * traffic->up * (1 - shards_here);
  traffic->link_in_down = here * traffic->down * (1 - shards_here);
  traffic->link_in_up = shards_here * others * traffic->up;
  traffic->link_out_down = shards_here * others * traffic->down;
  const double both = senders * (traffic->up + traffic->down);
  if (scenario.placement == Placement::kWithWorkers) {
    // Each link keeps the share of the bytes that its senders and its shards exchange.
    const double links = std::min<double>(Links(scenario), scenario.shards);
    double local = 0;
    for (double link = 0; link < links; ++link) {
      const double shards =
          std::floor(scenario.shards / links) + (link < std::fmod(scenario.shards, links) ? 1 : 0);
      local += here * shards / scenario.shards;
    }
    traffic->egress = both * (1 - local / senders);
    return;
  }
  traffic->shard_in = senders * traffic->up / scenario.shards;
  traffic->shard_out = senders * traffic->down / scenario.shards;
  traffic->egress = both;
}

}  // namespace

absl::StatusOr<double> BytesOf(const compress::CodecSpec& spec, const MachineFigures& machine,
                               const ModelSize& model, double elements) {
  const absl::StatusOr<CodecFigures> figures = FiguresOf(machine, spec);
  if (!figures.ok()) return figures.status();
  const double small = model.small_elements * elements / model.elements;
  const double small_bits =
      std::min(figures->bits, kHalfBits) < kHalfBits ? kHalfBits : figures->bits;
  return (figures->bits * (elements - small) + small_bits * small) / 8;
}

absl::StatusOr<Traffic> TrafficOf(const Scenario& scenario, const MachineFigures& machine) {
  Traffic traffic;
  traffic.elements = scenario.model.elements / scenario.local.fragments;
  struct Kind {
    compress::CodecSpec spec;
    double* bytes;
  };
  const Kind kinds[] = {{scenario.up, &traffic.up},
                        {scenario.down, &traffic.down},
                        {scenario.relay_up, &traffic.relay_up},
                        {{.codec = compress::CodecId::kNone}, &traffic.relay_down}};
  for (const Kind& kind : kinds) {
    const bool in_site = kind.bytes == &traffic.relay_up || kind.bytes == &traffic.relay_down;
    if (in_site && !scenario.relays) continue;
    const absl::StatusOr<double> bytes =
        BytesOf(kind.spec, machine, scenario.model, traffic.elements);
    if (!bytes.ok()) return bytes.status();
    *kind.bytes = *bytes;
  }
  AddLinks(scenario, &traffic);
  return traffic;
}

}  // namespace sluice::planning
