// SPDX-License-Identifier: Apache-2.0
#include "compress/gpu/device_residuals.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice::compress::gpu {

DeviceResiduals::DeviceResiduals(Device* device, size_t chunks)
    : device_(device), residuals_(chunks), copy_(device, true) {}

DeviceResiduals::~DeviceResiduals() {
  for (const Residual& residual : residuals_) device_->Free(residual.values);
  for (const auto& [count, floats] : spare_) device_->Free(floats);
}

absl::Status DeviceResiduals::Take(size_t count, float** floats) {
  const auto spare = spare_.find(count);
  if (spare != spare_.end()) {
    *floats = spare->second;
    spare_.erase(spare);
    return absl::OkStatus();
  }
  *floats = static_cast<float*>(device_->Allocate(count * sizeof(float)));
  if (*floats != nullptr) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "not enough memory on the GPU for the residual of ", count,
      " elements: use smaller batches, or encode on the processor (encode_location: host)"));
}

void DeviceResiduals::Replace(size_t chunk, float* floats) {
  Residual& residual = residuals_[chunk];
  Give(std::exchange(residual.values, floats), residual.count);
}

absl::Status DeviceResiduals::Make(size_t chunk, size_t count) {
  Residual& residual = residuals_[chunk];
  if (residual.values != nullptr) return absl::OkStatus();
  absl::Status scratch = Take(count, &residual.values);
  if (!scratch.ok()) return scratch;
  residual.count = count;
  device_->Clear(residual.values, count * sizeof(float));
  return absl::OkStatus();
}

absl::Status DeviceResiduals::Write(size_t chunk, absl::Span<const float> values) {
  Residual& residual = residuals_[chunk];
  if (residual.values != nullptr && residual.count != values.size()) {
    Give(std::exchange(residual.values, nullptr), residual.count);
  }
  if (values.empty()) return absl::OkStatus();
  if (residual.values == nullptr) {
    absl::Status scratch = Take(values.size(), &residual.values);
    if (!scratch.ok()) return scratch;
    residual.count = values.size();
  }
  const size_t bytes = values.size() * sizeof(float);
  absl::Status scratch = copy_.Reserve(bytes);
  if (!scratch.ok()) return scratch;
  std::memcpy(copy_.data(), values.data(), bytes);
  device_->CopyIn(residual.values, copy_.data(), bytes);
  return WaitFor(device_);
}

absl::Status DeviceResiduals::Read(size_t chunk, absl::Span<float> values) {
  const Residual& residual = residuals_[chunk];
  Check(residual.values != nullptr && residual.count == values.size(),
        "only a whole, existing residual can be read");
  device_->CopyOut(values.data(), residual.values, values.size() * sizeof(float));
  return WaitFor(device_);
}

}  // namespace sluice::compress::gpu
