#include "server/rpc/convert_parts.h"

#include <cmath>

#include "base/text.h"

namespace sluice::server {
namespace {

constexpr size_t kTextMax = 4096;

}  // namespace

std::string Shortened(const std::string& text) { return ValidText(text, kTextMax); }

void LayoutToProto(const protocol::LayoutParameters& layout, v1::LayoutParameters* out) {
  out->set_chunk_elements(layout.chunk_elements);
  out->set_bundle_elements(layout.bundle_elements);
}

void WaitToProto(const DiskWait& wait, v1::DiskWait* out) {
  out->set_what(wait.what);
  out->set_seconds(absl::ToDoubleSeconds(wait.lasts));
  out->set_trouble(wait.trouble);
}

DiskWait WaitFromProto(const v1::DiskWait& wait) {
  return {.what = Shortened(wait.what()),
          .lasts = absl::Seconds(AmountFromProto(wait.seconds())),
          .trouble = Shortened(wait.trouble())};
}

double AmountFromProto(double amount) { return amount > 0 && std::isfinite(amount) ? amount : 0; }

}  // namespace sluice::server
