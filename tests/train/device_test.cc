#include "worker/train/device.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(DeviceTest, AutoTakesAGpuAndSaysWhyItIsTheCpu) {
  EXPECT_EQ(ChooseDevice("cpu", 0, {.cuda = true, .gpus = 2})->description, "cpu");
  EXPECT_EQ(ChooseDevice("auto", 0, {})->description, "cpu (this LibTorch has no CUDA)");
  EXPECT_EQ(ChooseDevice("auto", 0, {.cuda = true})->description, "cpu (LibTorch sees no GPU)");
  EXPECT_FALSE(ChooseDevice("auto", 0, {.cuda = true})->gpu.has_value());
  for (const char* device : {"auto", "cuda"}) {
    const FoundDevices found{.cuda = true, .gpus = 2};
    EXPECT_EQ(ChooseDevice(device, 0, found)->gpu, 0);
    EXPECT_EQ(ChooseDevice(device, 1, found)->gpu, 1);
    EXPECT_EQ(ChooseDevice(device, 4, found)->gpu, 0);
    EXPECT_EQ(ChooseDevice(device, 1, found)->description, "cuda:1 (LibTorch sees 2 GPUs)");
  }
  EXPECT_EQ(ChooseDevice("cuda:1", 0, {.cuda = true, .gpus = 2})->gpu, 1);
}

TEST(DeviceTest, WhatCannotBeHadIsRefusedWithWhatWasFound) {
  for (const char* device : {"cuda", "cuda:1"}) {
    const absl::Status status = ChooseDevice(device, 0, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("device is ", device)));
    EXPECT_THAT(status.message(), HasSubstr("this LibTorch has no CUDA"));
    EXPECT_THAT(status.message(), HasSubstr("set device to auto or cpu"));
  }
  EXPECT_THAT(ChooseDevice("cuda:2", 0, {.cuda = true, .gpus = 2}).status().message(),
              HasSubstr("device is cuda:2, but LibTorch sees 2 GPUs"));
}

}  // namespace
}  // namespace sluice
