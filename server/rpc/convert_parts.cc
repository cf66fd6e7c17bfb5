#include "server/rpc/convert_parts.h"

#include <cmath>

namespace sluice {
namespace {

constexpr size_t kTextMax = 4096;

}  // namespace

std::string Shortened(const std::string& text) { return text.substr(0, kTextMax); }

void LayoutToProto(const LayoutParameters& layout, v1::LayoutParameters* out) {
  out->set_chunk_elements(layout.chunk_elements);
  out->set_bundle_elements(layout.bundle_elements);
}

double SecondsFromProto(double seconds) {
  return seconds > 0 && std::isfinite(seconds) ? seconds : 0;
}

}  // namespace sluice
