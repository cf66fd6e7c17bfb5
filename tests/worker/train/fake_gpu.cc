// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/train/fake_gpu.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <torch/types.h>

#include <atomic>
#include <new>
#include <tuple>
#include <utility>

namespace sluice::worker {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::CUDA;
constexpr std::align_val_t kAlignment{256};

std::atomic<uint64_t> events_recorded{0};

void Delete(void* memory) { ::operator delete(memory, kAlignment); }

constexpr c10::DeviceIndex kDevices = 2;
thread_local c10::DeviceIndex current = 0;

c10::Device OrCurrent(std::optional<c10::Device> device) {
  const bool names_one = device.has_value() && device->has_index();
  return {kType, names_one ? device->index() : current};
}

class FakeAllocator final : public c10::Allocator {
 public:
  explicit FakeAllocator(c10::Device device) : device_(device) {}

  c10::DataPtr allocate(size_t bytes) override {
    void* const memory = ::operator new(bytes, kAlignment);
    return {memory, memory, &Delete, device_};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  const c10::Device device_;
};

FakeAllocator* AllocatorOf(c10::Device device) {
  static FakeAllocator first({kType, 0}), second({kType, 1});
  return device.index() == 0 ? &first : &second;
}

// Each device has one stream, on which all work completes immediately.
class FakeGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kType, std::exchange(current, device.index())};
  }
  c10::Device getDevice() const override { return {kType, current}; }
  void setDevice(c10::Device device) const override { current = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.index(); }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, OrCurrent(device));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    *event = &events_recorded;
    ++events_recorded;
  }
  void block(void*, const c10::Stream&) const override {}
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
};

// Functions that LibTorch itself calls, for example when a program sets the random seed.
class FakeHooks final : public at::CUDAHooksInterface {
 public:
  explicit FakeHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return kDevices; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
};

at::Tensor EmptyStrided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                        std::optional<at::ScalarType> type, std::optional<at::Layout>,
                        std::optional<at::Device> device, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, AllocatorOf(OrCurrent(device)),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           type.value_or(at::kFloat));
}

at::Tensor Empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, AllocatorOf(OrCurrent(device)),
                                   c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   type.value_or(at::kFloat), format);
}

// Returns the CPU's view of a tensor on either device.
at::Tensor OnCpu(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions().dtype(tensor.scalar_type()));
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool) {
  OnCpu(to).copy_(OnCpu(from));
  return to;
}

at::Tensor& Copy(at::Tensor& to, const at::Tensor& from, bool) {
  OnCpu(to).copy_(OnCpu(from));
  return to;
}

const at::Tensor& Resize(const at::Tensor& self, c10::IntArrayRef sizes,
                         std::optional<at::MemoryFormat>) {
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * self.element_size();
  const c10::Storage& storage = self.storage();
  if (bytes > storage.nbytes()) {
    // The result will be overwritten, so the old values are not needed.
    storage.set_data_ptr_noswap(AllocatorOf(self.device())->allocate(bytes));
    storage.set_nbytes(bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return self;
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) Resize(to, from.sizes(), std::nullopt);
  return CopyFrom(from, to, false);
}

// This kernel updates the statistics in place. The fallback would update copies of them.
std::tuple<at::Tensor, at::Tensor, at::Tensor> BatchNorm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& mean,
    const std::optional<at::Tensor>& variance, bool training, double momentum, double epsilon) {
  const auto here = [](const std::optional<at::Tensor>& tensor) -> std::optional<at::Tensor> {
    if (!tensor.has_value() || !tensor->defined()) return std::nullopt;
    return OnCpu(*tensor);
  };
  const auto [output, saved_mean, saved_variance] =
      at::native_batch_norm(input.cpu(), here(weight), here(bias), here(mean), here(variance),
                            training, momentum, epsilon);
  const at::Device device = input.device();
  return {output.to(device), saved_mean.to(device), saved_variance.to(device)};
}

void Fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

}  // namespace

using at::CUDAHooksArgs;
using at::CUDAHooksInterface;
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, FakeHooks)  // LibTorch looks it up by this name.

C10_REGISTER_GUARD_IMPL(CUDA, FakeGuard)

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &Empty);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("copy_", &Copy);
  library.impl("native_batch_norm", &BatchNorm);
  // On a GPU, LibTorch would run these operations with kernels that round differently.
  for (const char* const op : {"convolution", "convolution_backward"}) {
    library.impl(op, torch::CppFunction::makeFromBoxedFunction<&Fallback>());
  }
  library.impl("_copy_from", &CopyFrom);
  library.impl("_copy_from_and_resize", &CopyFromAndResize);
  library.impl("resize_", &Resize);
  library.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

uint64_t FakeGpuEvents() { return events_recorded; }

}  // namespace sluice::worker
