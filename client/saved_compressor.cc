// SPDX-License-Identifier: Apache-2.0
#include "client/saved_compressor.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/checkpoint/snapshot_format.h"

namespace sluice::client {
namespace {

// Divides the tensors' values among their chunks. Chunks come in the order of (tensor, offset).
template <typename T>
class Division {
 public:
  explicit Division(const std::vector<std::span<T>>& tensors)
      : tensors_(tensors), taken_(tensors.size()) {}

  // Returns the values of the next chunk of a tensor. Buffers have none.
  absl::StatusOr<std::optional<std::span<T>>> Next(const compress::ChunkConfig& chunk) {
    if (chunk.tensor >= tensors_.size()) return std::optional<std::span<T>>();
    size_t& taken = taken_[chunk.tensor];
    if (chunk.count > tensors_[chunk.tensor].size() - taken) return WrongSize(chunk.tensor);
    taken += chunk.count;
    return tensors_[chunk.tensor].subspan(taken - chunk.count, chunk.count);
  }
  absl::Status End() const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (taken_[i] != tensors_[i].size()) return WrongSize(i);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status WrongSize(size_t tensor) const {
    return absl::InvalidArgumentError(absl::StrCat("the residual of tensor ", tensor, " has ",
                                                   tensors_[tensor].size(),
                                                   " elements, which is not the tensor's size"));
  }

  const std::vector<std::span<T>>& tensors_;
  std::vector<size_t> taken_;
};

}  // namespace

absl::StatusOr<std::string> Separate(compress::SavedCompressor saved,
                                     const std::vector<std::span<float>>& residuals) {
  Division<float> division(residuals);
  for (compress::SavedCompressor::Chunk& chunk : saved.chunks) {
    const auto values = division.Next(chunk.config);
    if (!values.ok()) return values.status();
    if (!values->has_value()) continue;
    const auto residual = chunk.state.extract(compress::kResidualState);
    if (residual.empty()) {
      std::fill((*values)->begin(), (*values)->end(), 0.0f);
    } else {
      std::copy(residual.mapped().begin(), residual.mapped().end(), (*values)->begin());
    }
  }
  if (absl::Status status = division.End(); !status.ok()) return status;
  protocol::WorkerSnapshot snapshot;
  snapshot.uplink = std::move(saved);
  return protocol::FormatWorkerSnapshot(snapshot);
}

absl::StatusOr<compress::SavedCompressor> Combine(
    absl::string_view rest, const std::vector<std::span<const float>>& residuals) {
  absl::StatusOr<protocol::WorkerSnapshot> snapshot = protocol::ParseWorkerSnapshot(rest);
  if (!snapshot.ok()) return snapshot.status();
  Division<const float> division(residuals);
  for (compress::SavedCompressor::Chunk& chunk : snapshot->uplink.chunks) {
    const auto values = division.Next(chunk.config);
    if (!values.ok()) return values.status();
    // Zeros are the same as no residual, which compensators without one accept.
    const bool any =
        values->has_value() && std::any_of((*values)->begin(), (*values)->end(),
                                           [](float x) { return std::bit_cast<uint32_t>(x) != 0; });
    if (any) chunk.state[compress::kResidualState] = {(*values)->begin(), (*values)->end()};
  }
  if (absl::Status status = division.End(); !status.ok()) return status;
  return std::move(snapshot->uplink);
}

}  // namespace sluice::client
