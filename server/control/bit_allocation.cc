// SPDX-License-Identifier: Apache-2.0
#include "server/control/bit_allocation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "server/control/codec_rate_distortion.h"

namespace sluice::server {
namespace {

const compress::CodecSpec kDense{.codec = compress::CodecId::kFp16};
constexpr int kBisections = 48;

double Bytes(double elements, double bits) { return elements * bits / 8; }

double DenseBytes(absl::Span<const ControlledTensor> tensors) {
  double bytes = 0;
  for (const ControlledTensor& tensor : tensors) {
    if (!tensor.compressed) bytes += Bytes(static_cast<double>(tensor.elements), 16);
  }
  return bytes;
}

double CompressedElements(absl::Span<const ControlledTensor> tensors) {
  double elements = 0;
  for (const ControlledTensor& tensor : tensors) {
    if (tensor.compressed) elements += static_cast<double>(tensor.elements);
  }
  return elements;
}

// Returns the largest density, shared by all elements, whose bytes fit.
double EvenDensity(double elements, const SparseAllocation& options, double bytes) {
  double low = options.density_min;
  double high = options.density_max;
  if (Bytes(elements, SparseBits(high, options.sparse.values)) <= bytes) return high;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = std::sqrt(low * high);
    const bool fits = Bytes(elements, SparseBits(middle, options.sparse.values)) <= bytes;
    (fits ? low : high) = middle;
  }
  return low;
}

// Returns lost / energy, or 0 for a tensor without energy.
double Share(double lost, double energy) { return energy > 0 ? lost / energy : 0; }

}  // namespace

Spent AllocateByDensity(absl::Span<const ControlledTensor> tensors, const SparseAllocation& options,
                        double bytes) {
  compress::CodecSpec spec = options.sparse;
  spec.level = EvenDensity(CompressedElements(tensors), options, bytes - DenseBytes(tensors));
  absl::StatusOr<Spent> spent = SpendEvenly(tensors, spec);
  return spent.ok() ? *std::move(spent) : Spent{};
}

absl::StatusOr<Spent> SpendOnCodecs(absl::Span<const ControlledTensor> tensors,
                                    absl::Span<const compress::CodecSpec> candidates,
                                    double bytes) {
  if (candidates.empty()) return absl::InvalidArgumentError("no codec to choose from");
  std::vector<CodecRateDistortion> prices;
  for (const compress::CodecSpec& spec : candidates) {
    const absl::StatusOr<CodecRateDistortion> price = PriceOf(spec);
    if (!price.ok()) return price.status();
    prices.push_back(*price);
  }
  // Returns the best candidate of each tensor for one lambda. Of two equal candidates, the cheaper
  // one wins.
  const auto choose = [&](double lambda) {
    std::vector<size_t> chosen(tensors.size(), 0);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto elements = static_cast<double>(tensors[i].elements);
      const double energy = tensors[i].weight * elements;
      const auto cost = [&](size_t c) {
        return energy * prices[c].error + lambda * Bytes(elements, prices[c].bits);
      };
      for (size_t c = 1; c < prices.size(); ++c) {
        const double gain = cost(chosen[i]) - cost(c);
        if (gain > 0 || (gain == 0 && prices[c].bits < prices[chosen[i]].bits)) chosen[i] = c;
      }
    }
    return chosen;
  };
  const auto make = [&](const std::vector<size_t>& chosen) {
    Spent spent;
    double lost = 0;
    double energy = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto elements = static_cast<double>(tensors[i].elements);
      const double own = tensors[i].weight * elements;
      const bool compressed = tensors[i].compressed;
      spent.coding.codecs.push_back(compressed ? candidates[chosen[i]] : kDense);
      spent.coding.bytes += Bytes(elements, compressed ? prices[chosen[i]].bits : 16);
      lost += compressed ? own * prices[chosen[i]].error : 0;
      energy += own;
    }
    spent.error = Share(lost, energy);
    return spent;
  };
  Spent best = make(choose(0));
  if (best.coding.bytes <= bytes) return best;
  double low = std::log(1e-30);
  double high = std::log(1e30);
  for (int i = 0; i < 2 * kBisections; ++i) {
    const double middle = (low + high) / 2;
    (make(choose(std::exp(middle))).coding.bytes <= bytes ? high : low) = middle;
  }
  // The remaining bytes go to one tensor after another. Tensors with equal weights change their
  // codec at the same lambda, so lambda alone would change all of them or none.
  std::vector<size_t> chosen = choose(std::exp(high));
  const std::vector<size_t> dearer = choose(std::exp(low));
  best = make(chosen);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].compressed || chosen[i] == dearer[i]) continue;
    const double more = Bytes(static_cast<double>(tensors[i].elements),
                              prices[dearer[i]].bits - prices[chosen[i]].bits);
    if (best.coding.bytes + more > bytes) continue;
    chosen[i] = dearer[i];
    best = make(chosen);
  }
  return best;
}

absl::StatusOr<Spent> SpendEvenly(absl::Span<const ControlledTensor> tensors,
                                  const compress::CodecSpec& spec) {
  const absl::StatusOr<CodecRateDistortion> price = PriceOf(spec);
  if (!price.ok()) return price.status();
  const bool lossless = spec.codec == compress::CodecId::kNone;
  Spent spent;
  double lost = 0;
  double all = 0;
  for (const ControlledTensor& tensor : tensors) {
    const bool same = tensor.compressed || lossless;
    const auto elements = static_cast<double>(tensor.elements);
    spent.coding.codecs.push_back(same ? spec : kDense);
    spent.coding.bytes += Bytes(elements, same ? price->bits : 16);
    lost += same ? tensor.weight * elements * price->error : 0;
    all += tensor.weight * elements;
  }
  spent.error = Share(lost, all);
  return spent;
}

}  // namespace sluice::server
