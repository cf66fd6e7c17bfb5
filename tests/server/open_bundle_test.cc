#include "server/core/open_bundle.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(SumPoolTest, GivesMemoryThatWasUsedBefore) {
  SumPool pool(100);
  std::vector<float> sum = pool.Take(80);
  EXPECT_EQ(sum.size(), 80u);
  const float* const memory = sum.data();
  pool.GiveBack(std::move(sum));
  const std::vector<float> again = pool.Take(60);
  EXPECT_EQ(again.size(), 60u);
  EXPECT_EQ(again.data(), memory);
}

TEST(SumPoolTest, GrowsForALargerOne) {
  SumPool pool(100);
  pool.GiveBack(pool.Take(10));
  EXPECT_EQ(pool.Take(90).size(), 90u);
}

// Many small bundles at once, then many large ones: what is kept must not become as many large ones
// as there were small ones.
TEST(SumPoolTest, KeepsNoMoreThanItMay) {
  SumPool pool(100);
  for (const size_t elements : {10u, 30u, 50u}) {
    std::vector<std::vector<float>> taken;
    for (int i = 0; i < 10; ++i) taken.push_back(pool.Take(elements));
    for (std::vector<float>& sum : taken) pool.GiveBack(std::move(sum));
    EXPECT_LE(pool.spare_elements(), 100u) << elements;
    EXPECT_GE(pool.spare_elements(), 50u) << elements;
  }
}

}  // namespace
}  // namespace sluice
