// SPDX-License-Identifier: Apache-2.0
#include "compress/gpu/device_buffer.h"

#include "absl/strings/str_cat.h"

namespace sluice::compress::gpu {

absl::Status DeviceBuffer::Reserve(size_t bytes) {
  if (bytes <= size_) return absl::OkStatus();
  Release();
  data_ = pinned_ ? device_->AllocatePinned(bytes) : device_->Allocate(bytes);
  if (data_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "not enough memory for ", bytes, pinned_ ? " pinned bytes of the host" : " bytes",
        " to encode on the GPU: use smaller batches, or encode on the processor "
        "(encode_location: host)"));
  }
  size_ = bytes;
  return absl::OkStatus();
}

void DeviceBuffer::Release() {
  if (data_ == nullptr) return;
  if (pinned_) {
    device_->FreePinned(data_);
  } else {
    device_->Free(data_);
  }
  data_ = nullptr;
  size_ = 0;
}

absl::Status WaitFor(Device* device) {
  const char* const problem = device->Wait();
  if (problem == nullptr) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the GPU failed while encoding: ", problem,
                   ": restart the worker; it continues from the last checkpoint"));
}

}  // namespace sluice::compress::gpu
