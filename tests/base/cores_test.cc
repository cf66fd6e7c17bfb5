// SPDX-License-Identifier: Apache-2.0
#include "base/cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sluice {
namespace {

class CoresTest : public ::testing::Test {
 protected:
  CoresTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/pod/container");
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }
  int Cores() { return AvailableCores(folder_, folder_ + "/own"); }

  const std::string folder_ = ::testing::TempDir() + "/cores_" + std::to_string(::getpid());
  const int all_ = AvailableCores("/nowhere", "/nowhere");
};

TEST_F(CoresTest, WithoutGroupsAllThatItMayRunOn) {
  EXPECT_GE(all_, 1);
  EXPECT_EQ(Cores(), all_);
  EXPECT_LE(AvailableCores(), all_);
}

TEST_F(CoresTest, TheLeastOfItsGroupAndThoseAboveCounts) {
  Write("own", "4:memory:/elsewhere\n0::/pod/container\n");
  Write("pod/container/cpu.max", "max 100000\n");
  EXPECT_EQ(Cores(), all_);
  Write("pod/cpu.max", "150000 100000\n");
  EXPECT_EQ(Cores(), 1);
  Write("pod/cpu.max", "90000000 100000\n");
  EXPECT_EQ(Cores(), all_) << "the quota exceeds the available cores";
  Write("pod/container/cpu.max", "20000 100000\n");
  EXPECT_EQ(Cores(), 1) << "the result is at least one core";
}

TEST_F(CoresTest, InAContainerTheGroupIsTheRoot) {
  Write("own", "0::/\n");
  Write("cpu.max", "100000 100000\n");
  EXPECT_EQ(Cores(), 1);
}

TEST_F(CoresTest, WhatIsNoLimitIsNone) {
  Write("own", "0::/pod/container\n");
  for (const char* text : {"", "max", "12", "-5 100000", "5 0", "\xff\xff"}) {
    Write("pod/cpu.max", text);
    EXPECT_EQ(Cores(), all_) << text;
  }
}

}  // namespace
}  // namespace sluice
