// SPDX-License-Identifier: Apache-2.0
#include "worker/train/device.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/job_spec.h"

namespace sluice::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

absl::StatusOr<ChosenDevice> Choose(const char* device, uint32_t rank, const FoundDevices& found,
                                    uint32_t gpus = 1) {
  job::JobSpec spec;
  spec.training.device = device;
  spec.training.gpus_per_worker = gpus;
  return ChooseDevice(spec, rank, found);
}

TEST(DeviceTest, AutoTakesAGpuAndSaysWhyItIsTheCpu) {
  EXPECT_EQ(Choose("cpu", 0, {.cuda = true, .gpus = 2})->description, "cpu");
  EXPECT_EQ(Choose("auto", 0, {})->description, "cpu (this LibTorch has no CUDA)");
  EXPECT_EQ(Choose("auto", 0, {.cuda = true})->description, "cpu (LibTorch sees no GPU)");
  EXPECT_THAT(Choose("auto", 0, {.cuda = true})->gpus, IsEmpty());
  for (const char* device : {"auto", "cuda"}) {
    const FoundDevices found{.cuda = true, .gpus = 2};
    EXPECT_THAT(Choose(device, 0, found)->gpus, ElementsAre(0));
    EXPECT_THAT(Choose(device, 1, found)->gpus, ElementsAre(1));
    EXPECT_THAT(Choose(device, 4, found)->gpus, ElementsAre(0));
    EXPECT_EQ(Choose(device, 1, found)->description, "cuda:1 (LibTorch sees 2 GPUs)");
  }
  EXPECT_THAT(Choose("cuda:1", 0, {.cuda = true, .gpus = 2})->gpus, ElementsAre(1));
}

TEST(DeviceTest, SeveralGpusOfAWorkerAreNobodyElses) {
  const FoundDevices found{.cuda = true, .gpus = 5};
  EXPECT_THAT(Choose("cuda", 0, found, 2)->gpus, ElementsAre(0, 1));
  EXPECT_THAT(Choose("auto", 1, found, 2)->gpus, ElementsAre(2, 3));
  EXPECT_THAT(Choose("auto", 2, found, 2)->gpus, ElementsAre(0, 1));
  EXPECT_THAT(Choose("cuda:2", 7, found, 3)->gpus, ElementsAre(2, 3, 4));
  EXPECT_EQ(Choose("cuda:2", 7, found, 2)->description, "cuda:2, cuda:3 (LibTorch sees 5 GPUs)");
  // On the CPU, one model suffices for any number of GPUs per worker.
  EXPECT_THAT(Choose("auto", 0, {}, 2)->gpus, IsEmpty());
  for (const char* device : {"auto", "cuda", "cuda:0"}) {
    EXPECT_THAT(
        Choose(device, 0, found, 6).status().message(),
        AllOf(HasSubstr("6 GPUs per worker (gpus_per_worker)"), HasSubstr("LibTorch sees 5 GPUs")));
  }
  EXPECT_FALSE(Choose("cuda:4", 0, found, 2).ok());
}

TEST(DeviceTest, WhatCannotBeHadIsRefusedWithWhatWasFound) {
  for (const char* device : {"cuda", "cuda:1"}) {
    const absl::Status status = Choose(device, 0, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("device is ", device)));
    EXPECT_THAT(status.message(), HasSubstr("this LibTorch has no CUDA"));
    EXPECT_THAT(status.message(), HasSubstr("set device to auto or cpu"));
  }
  EXPECT_THAT(Choose("cuda:2", 0, {.cuda = true, .gpus = 2}).status().message(),
              AllOf(HasSubstr("device is cuda:2"), HasSubstr("LibTorch sees 2 GPUs")));
}

}  // namespace
}  // namespace sluice::worker
