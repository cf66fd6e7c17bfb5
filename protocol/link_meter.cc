// SPDX-License-Identifier: Apache-2.0
#include "protocol/link_meter.h"

#include <algorithm>
#include <utility>

namespace sluice::protocol {
namespace {

// Upper limit of clock readings in nanoseconds. A larger reading is not a valid time and could
// overflow.
constexpr uint64_t kTimeMax = uint64_t{1} << 61;

bool IsLarger(const LinkPeriod& a, const LinkPeriod& b) { return a.bytes > b.bytes; }

}  // namespace

void LinkMeter::Came(uint64_t bytes, uint64_t ready, int64_t came, bool probe) {
  if (ready == 0 || ready > kTimeMax || came < 0 || came > static_cast<int64_t>(kTimeMax)) return;
  const int64_t way = came - static_cast<int64_t>(ready);
  if (probe) {
    shortest_.push_back(way);
    if (shortest_.size() > kProbes) shortest_.pop_front();
  }
  if (shortest_.empty()) return;
  shortest_.back() = std::min(shortest_.back(), way);
  if (probe) return;
  // The link could start to transmit this message once it was ready and all earlier messages had
  // arrived.
  const int64_t least = *std::min_element(shortest_.begin(), shortest_.end());
  const int64_t free = static_cast<int64_t>(ready) + least;
  if (open_.has_value() && free < last_came_) {
    open_->bytes += bytes;
  } else {
    Close();
    open_ = Open{.bytes = bytes, .begin = std::max(free, last_came_)};
  }
  open_->end = last_came_ = std::max(came, open_->begin);
}

void LinkMeter::Close() {
  if (!open_.has_value()) return;
  const LinkPeriod period{.bytes = open_->bytes,
                          .seconds = 1e-9 * static_cast<double>(open_->end - open_->begin)};
  open_.reset();
  if (period.bytes == 0 || period.seconds <= 0) return;
  periods_.push_back(period);
  // If there are too many periods, the largest and the smallest are kept: large periods determine
  // the rate, and their difference from a small one determines the latency.
  if (periods_.size() <= LinkReport::kPeriodsMax) return;
  std::stable_sort(periods_.begin(), periods_.end(), IsLarger);
  periods_.erase(periods_.end() - 2);
}

std::vector<LinkPeriod> LinkMeter::Take() {
  Close();
  std::stable_sort(periods_.begin(), periods_.end(), IsLarger);
  return std::exchange(periods_, {});
}

}  // namespace sluice::protocol
