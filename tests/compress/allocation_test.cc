// SPDX-License-Identifier: Apache-2.0
// Tests that encoding and adding allocate no memory after some steps, because all buffers exist by
// then. This is a separate program because it counts every allocation.

#include <atomic>
#include <cstdlib>
#include <new>

#include "compress/aggregator.h"
#include "compress/compressor.h"
#include "gtest/gtest.h"
#include "tests/compress/one_chunk.h"
#include "tests/compress/test_data.h"

namespace {

std::atomic<size_t> allocations = 0;

void* Counted(size_t size) {
  ++allocations;
  void* const at = std::malloc(size);
  if (at == nullptr) std::abort();
  return at;
}

}  // namespace

void* operator new(size_t size) { return Counted(size); }
void* operator new[](size_t size) { return Counted(size); }
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }
void operator delete[](void* at, size_t) noexcept { std::free(at); }

namespace sluice::compress {
namespace {

constexpr int kWarmSteps = 6, kSteps = 12;
constexpr uint32_t kSenders = 3;

class Allocations : public ::testing::TestWithParam<std::string> {};

// Several senders, whose gradients differ from step to step, and their receiver.
class Steps {
 public:
  Steps(const std::string& spec, size_t count) {
    config_.count = count;
    config_.rows = RowsOf(count);
    config_.spec = *ParseCodecSpec(spec);
    for (uint32_t sender = 0; sender < kSenders; ++sender) {
      compressors_.emplace_back(absl::MakeConstSpan(&config_, 1),
                                Compressor::Options{.seed = 5, .sender = sender});
      // In a job, the owners of frames reserve the largest size. Some encoders write slightly
      // beyond the end of the frame.
      frames_[sender].reserve(compressors_.back().MaxFrameSize(0) + 64);
    }
    aggregator_ = MakeAggregator(config_, kSenders);
    for (int i = 0; i < kWarmSteps + kSteps; ++i) {
      for (uint32_t sender = 0; sender < kSenders; ++sender) {
        gradients_.push_back(HeavyTailed(count, gradients_.size()));
      }
    }
    sum_.resize(count);
    shared_.reserve(compressors_[0].MaxFrameSize(0) + 4096);
  }

  void Step(uint64_t step) {
    for (uint32_t sender = 0; sender < kSenders; ++sender) {
      frames_[sender].clear();
      const std::vector<float>& gradient = gradients_[step * kSenders + sender];
      ASSERT_TRUE(compressors_[sender].Encode(0, step, gradient, &frames_[sender]).ok());
      compressors_[sender].EndStep(step);
    }
    std::fill(sum_.begin(), sum_.end(), 0.0f);
    SenderFrame list[kSenders];
    for (uint32_t sender = 0; sender < kSenders; ++sender) {
      ASSERT_TRUE(aggregator_->Validate(sender, frames_[sender]).ok());
      list[sender] = {.sender = sender, .frame = frames_[sender]};
    }
    aggregator_->Add(list, absl::MakeSpan(sum_));
    aggregator_->Close(kSenders, absl::MakeSpan(sum_));
    shared_.clear();
    aggregator_->AppendShared(&shared_);
    if (shared_.empty()) return;
    for (Compressor& compressor : compressors_) compressor.Observe(0, shared_);
  }

 private:
  ChunkConfig config_;
  std::vector<Compressor> compressors_;
  std::unique_ptr<Aggregator> aggregator_;
  std::vector<std::byte> frames_[kSenders], shared_;
  std::vector<std::vector<float>> gradients_;
  std::vector<float> sum_;
};

TEST_P(Allocations, NoneAfterSomeSteps) {
  for (const size_t count : {6000, 700}) {
    Steps steps(GetParam(), count);
    for (int step = 0; step < kWarmSteps; ++step) steps.Step(static_cast<uint64_t>(step));
    const size_t before = allocations;
    for (int step = kWarmSteps; step < kWarmSteps + kSteps; ++step) {
      steps.Step(static_cast<uint64_t>(step));
    }
    EXPECT_EQ(allocations - before, 0u) << count;
  }
}

std::vector<std::string> Specs() {
  std::vector<std::string> specs = TestedSpecs();
  for (const char* more : {"topk:1%/dgc:0.9", "topk:5%/ef21", "eden:2/ef21", "intsum:4/ef21",
                           "qsgd:4/diana", "int8:sr/diana"}) {
    specs.emplace_back(more);
  }
  return specs;
}

INSTANTIATE_TEST_SUITE_P(Specs, Allocations, ::testing::ValuesIn(Specs()), [](const auto& param) {
  std::string name = std::to_string(param.index) + "_" + param.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

}  // namespace
}  // namespace sluice::compress
