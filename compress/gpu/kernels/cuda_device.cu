// SPDX-License-Identifier: Apache-2.0
// The Device for a GPU. Each object has its own stream.
#include <cuda_runtime.h>

#include "compress/gpu/kernels/device.h"
#include "compress/gpu/kernels/device_block.cuh"
#include "compress/gpu/kernels/run_work.h"

namespace sluice::compress::gpu {
namespace {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    Select();
    Note(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~CudaDevice() override {
    Select();
    cudaStreamDestroy(stream_);
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  void* Allocate(size_t bytes) override {
    Select();
    void* memory = nullptr;
    return Got(cudaMalloc(&memory, bytes)) ? memory : nullptr;
  }
  void Free(void* memory) override {
    Select();
    Note(cudaFree(memory));
  }
  void* AllocatePinned(size_t bytes) override {
    Select();
    void* memory = nullptr;
    return Got(cudaMallocHost(&memory, bytes)) ? memory : nullptr;
  }
  void FreePinned(void* memory) override {
    Select();
    Note(cudaFreeHost(memory));
  }

  void After(void* event) override {
    Select();
    if (event != nullptr) Note(cudaStreamWaitEvent(stream_, static_cast<cudaEvent_t>(event), 0));
  }
  void CopyIn(void* to, const void* from, size_t bytes) override {
    Select();
    Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
  }
  void CopyOut(void* to, const void* from, size_t bytes) override {
    Select();
    Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_));
  }
  void Clear(void* memory, size_t bytes) override {
    Select();
    Note(cudaMemsetAsync(memory, 0, bytes, stream_));
  }
  void Run(const EncodeWork& work) override { Launch(work); }
  void Run(const SampleWork& work) override { Launch(work); }
  void Run(const AddWork& work) override { Launch(work); }

  const char* Wait() override {
    Select();
    Note(cudaStreamSynchronize(stream_));
    return first_ == cudaSuccess ? nullptr : cudaGetErrorString(first_);
  }

 private:
  template <class Work>
  void Launch(const Work& work) {
    Select();
    RunWork(work, [this](const auto& kernel, uint32_t blocks) {
      Note(gpu::Launch(kernel, blocks, stream_));
    });
  }
  // Selects the GPU for the calling thread, which may have used a different GPU before.
  void Select() { Note(cudaSetDevice(index_)); }
  void Note(cudaError_t error) {
    if (first_ == cudaSuccess) first_ = error;
  }
  // Returns true on success. Insufficient memory does not count as a failure of the device.
  bool Got(cudaError_t error) {
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
    } else {
      Note(error);
    }
    return error == cudaSuccess;
  }

  const int index_;
  cudaStream_t stream_ = nullptr;
  cudaError_t first_ = cudaSuccess;
};

}  // namespace

std::unique_ptr<Device> MakeCudaDevice(int index, std::string* problem) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) {
    *problem = cudaGetErrorString(error);
    return nullptr;
  }
  if (index < 0 || index >= devices) {
    *problem = "GPU " + std::to_string(index) + " was requested, but the number of GPUs is " +
               std::to_string(devices);
    return nullptr;
  }
  std::unique_ptr<Device> device = std::make_unique<CudaDevice>(index);
  if (const char* const failed = device->Wait(); failed != nullptr) {
    *problem = failed;
    return nullptr;
  }
  return device;
}

}  // namespace sluice::compress::gpu
