// SPDX-License-Identifier: Apache-2.0
#include "server/control/link_estimate.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace sluice::server {
namespace {

constexpr size_t kPooledSteps = 16;
// If the relative standard deviation of transfer sizes is smaller than this, latency and rate
// cannot be told apart.
constexpr double kSpreadMin = 0.2;
constexpr size_t kTransfersForJitter = 4;
// The expected time of a transfer is at least this share of the fastest transfer's time. This
// bounds the residual.
constexpr double kShareOfFastest = 0.5;
// A rate is accepted only if the time beyond latency is at least this many standard errors. Steps
// are pooled until that holds.
constexpr double kErrorsEnough = 6;
// Number of standard errors to subtract from the time beyond latency, because latency jitter is not
// transfer time. Where latency dominates, noise would otherwise look like a slow link, and sending
// less would make the link look even slower. If the subtraction leads to too many bytes, the next
// steps show it.
constexpr double kErrorsOff = 1;
// The minimum share of the time that counts as beyond latency. Keeps the rate finite.
constexpr double kBeyondLatencyMin = 0.001;

bool Counts(const Transfer& transfer) {
  return transfer.bytes > 0 && std::isfinite(transfer.seconds) && transfer.seconds > 0;
}

// Returns the k-th lowest value, counted from 0; k must be below values.size().
double Lowest(std::vector<double> values, size_t k) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(k), values.end());
  return values[k];
}

template <typename T>
void Push(std::deque<T>* kept, T value, size_t limit) {
  kept->push_back(value);
  if (kept->size() > limit) kept->pop_front();
}

}  // namespace

void LinkEstimate::AddStep(absl::Span<const Transfer> transfers) {
  std::vector<Transfer> full;
  double reached = 0;
  for (const Transfer& transfer : transfers) {
    if (!Counts(transfer)) continue;
    if (transfer.sender_limited) {
      reached = std::max(reached, static_cast<double>(transfer.bytes) / transfer.seconds);
    } else {
      full.push_back(transfer);
    }
  }
  if (full.empty()) {
    // If the sender limited all transfers, the step counts only if its rate is above the last one.
    if (known() && reached > rates_.back()) Push(&rates_, reached, kSustainedSteps);
    return;
  }
  FitLatency(full);
  Step step{.transfers = full.size()};
  for (const Transfer& transfer : full) {
    step.bytes += static_cast<double>(transfer.bytes);
    step.seconds += transfer.seconds;
  }
  Push(&steps_, step, kPooledSteps);
  Push(&rates_, std::max(PooledRate(), reached), kSustainedSteps);
}

void LinkEstimate::FitLatency(absl::Span<const Transfer> transfers) {
  double bytes = 0;
  double seconds = 0;
  double fastest = transfers[0].seconds;
  const auto count = static_cast<double>(transfers.size());
  for (const Transfer& transfer : transfers) {
    bytes += static_cast<double>(transfer.bytes) / count;
    seconds += transfer.seconds / count;
    fastest = std::min(fastest, transfer.seconds);
  }
  double square = 0;
  double product = 0;
  for (const Transfer& transfer : transfers) {
    const double more = static_cast<double>(transfer.bytes) - bytes;
    square += more * more;
    product += more * (transfer.seconds - seconds);
  }
  if (std::sqrt(square / count) < kSpreadMin * bytes) return;
  // The intercept is not clamped to possible values, so that noise stays symmetric and the median
  // stays unbiased.
  const double slope = product / square;
  const double intercept = seconds - bytes * slope;
  Push(&intercepts_, intercept, kLatencySteps);
  latency_s_ =
      std::max(Lowest({intercepts_.begin(), intercepts_.end()}, intercepts_.size() / 2), 0.0);
  if (transfers.size() < kTransfersForJitter) return;
  double residuals = 0;
  for (const Transfer& transfer : transfers) {
    const double expected = intercept + static_cast<double>(transfer.bytes) * slope;
    const double share = transfer.seconds / std::max(expected, kShareOfFastest * fastest) - 1;
    residuals += share * share;
  }
  Push(&jitters_, std::sqrt(residuals / (count - 2)), kLatencySteps);
  jitter_ = Lowest({jitters_.begin(), jitters_.end()}, jitters_.size() / 2);
}

double LinkEstimate::PooledRate() const {
  double bytes = 0;
  double seconds = 0;
  double latencies = 0;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    bytes += step->bytes;
    seconds += step->seconds;
    latencies += static_cast<double>(step->transfers);
    if (seconds - latencies * latency_s_ >= kErrorsEnough * Error(latencies)) break;
  }
  const double beyond = seconds - latencies * latency_s_ - kErrorsOff * Error(latencies);
  return bytes / std::max(beyond, kBeyondLatencyMin * seconds);
}

double LinkEstimate::Error(double transfers) const {
  return jitter_ * latency_s_ * std::sqrt(transfers);
}

double LinkEstimate::rate_now() const { return rates_.empty() ? 0 : rates_.back(); }

double LinkEstimate::rate_recent() const {
  if (rates_.empty()) return 0;
  const size_t count = std::min<size_t>(rates_.size(), 3);
  return Lowest({rates_.end() - static_cast<ptrdiff_t>(count), rates_.end()}, (count - 1) / 2);
}

double LinkEstimate::rate_sustained() const {
  if (rates_.empty()) return 0;
  return Lowest({rates_.begin(), rates_.end()}, std::min(kSlowerSteps, rates_.size() / 4));
}

double LinkEstimate::rate() const { return std::min(rate_recent(), rate_sustained()); }

}  // namespace sluice::server
