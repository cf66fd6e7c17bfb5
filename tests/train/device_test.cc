#include "worker/train/device.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(DeviceTest, AutoSaysWhyItIsTheCpu) {
  EXPECT_EQ(*ChooseDevice("cpu", {}), "cpu");
  EXPECT_EQ(*ChooseDevice("auto", {}), "cpu (this LibTorch has no CUDA)");
  EXPECT_EQ(*ChooseDevice("auto", {.cuda = true}), "cpu (LibTorch sees no GPU)");
  EXPECT_THAT(*ChooseDevice("auto", {.cuda = true, .gpus = 2}), HasSubstr("sees 2 GPUs"));
}

TEST(DeviceTest, WhatCannotBeHadIsRefusedWithWhatWasFound) {
  for (const char* device : {"cuda", "cuda:1"}) {
    const absl::Status status = ChooseDevice(device, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(status.message(), HasSubstr(device));
    EXPECT_THAT(status.message(), HasSubstr("this LibTorch has no CUDA"));
    EXPECT_THAT(status.message(), HasSubstr("set device to auto or cpu"));
  }
}

}  // namespace
}  // namespace sluice
