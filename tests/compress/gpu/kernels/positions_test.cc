// SPDX-License-Identifier: Apache-2.0
// Tests that a block of threads codes positions to the processor's bytes, for any gaps.
#include "compress/gpu/kernels/positions.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "base/random.h"
#include "compress/coding/position_coding.h"
#include "compress/gpu/kernels/add_sparse.h"
#include "tests/compress/gpu/kernels/encoded.h"

namespace sluice::compress::gpu {
namespace {

struct CodePositions {
  static constexpr int kThreads = 256;
  struct Shared {};

  IndexMode mode;
  Gaps gaps;
  uint32_t sum;
  uint8_t* first_planes;
  uint8_t* last_plane;
  IndexLayout* made;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t) const {
    const IndexLayout plan = PlanPositions(block, mode, gaps, sum);
    WriteFirstPlanes(block, plan, gaps, first_planes);
    WriteLastPlane(block, plan, gaps, last_plane);
    *made = plan;
  }
};

struct DecodePositions {
  static constexpr int kThreads = 256;
  struct Shared {};

  uint8_t coding;
  uint32_t kept;
  const uint8_t* first_planes;
  const uint8_t* last_plane;
  uint32_t last_bytes;
  AddScratch scratch;
  uint32_t* first_bytes;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t) const {
    PositionPlanes planes(coding, kept, scratch);
    *first_bytes = static_cast<uint32_t>(planes.ReadFirst(block, first_planes) - first_planes);
    planes.ReadLast(block, last_plane, last_bytes);
  }
};

constexpr IndexMode kModes[] = {IndexMode::kAuto, IndexMode::kRice, IndexMode::kPacked,
                                IndexMode::kBytes, IndexMode::kBitmap};
constexpr uint8_t kUntouched = 0xEE;

// Checks the plane, and that kernels do not write beyond its end.
void ExpectPlane(const std::vector<uint8_t>& plane, const std::vector<std::byte>& expected) {
  ASSERT_GE(plane.size(), expected.size() + 16);
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::byte{plane[i]}, expected[i]) << i;
  }
  for (size_t i = 0; i < 16; ++i) ASSERT_EQ(plane[expected.size() + i], kUntouched);
}

void ExpectDecoded(const std::vector<uint32_t>& gaps, uint8_t coding,
                   const std::vector<uint8_t>& first, const std::vector<uint8_t>& last,
                   size_t last_bytes, uint32_t expected_first, ThreadOrder order) {
  const auto kept = static_cast<uint32_t>(gaps.size());
  std::vector<uint32_t> ends(kept, 7), offsets(ends), positions(ends);
  uint32_t first_bytes = 7;
  RunOnHost(DecodePositions{coding,
                            kept,
                            first.data(),
                            last.data(),
                            static_cast<uint32_t>(last_bytes),
                            {ends.data(), offsets.data(), positions.data()},
                            &first_bytes},
            1, order);
  EXPECT_EQ(first_bytes, expected_first);
  uint32_t next = 0;
  for (uint32_t i = 0; i < kept; ++i) {
    ASSERT_EQ(positions[i], next + gaps[i]) << "position " << i << ", coding " << int{coding};
    next = positions[i] + 1;
  }
}

// Codes and decodes positions. Returns the codings that were used.
std::set<int> ExpectSamePositions(const std::vector<uint32_t>& gaps) {
  const uint64_t sum = std::accumulate(gaps.begin(), gaps.end(), uint64_t{0});
  std::set<int> codings;
  for (const IndexMode mode : kModes) {
    const IndexLayout wanted = sluice::compress::PlanPositions(mode, gaps, sum);
    std::vector<std::byte> first, last;
    AppendFirstPlanes(wanted, gaps, &first);
    AppendLastPlane(wanted, gaps, &last);
    codings.insert(wanted.coding);
    for (const ThreadOrder order : kOrders) {
      std::vector<uint8_t> first_planes(first.size() + 16, kUntouched);
      std::vector<uint8_t> last_plane(last.size() + 16, kUntouched);
      std::vector<uint32_t> scratch(sum + gaps.size(), 7);
      IndexLayout plan;
      RunOnHost(CodePositions{mode,
                              {gaps.data(), static_cast<uint32_t>(gaps.size()), scratch.data()},
                              static_cast<uint32_t>(sum),
                              first_planes.data(),
                              last_plane.data(),
                              &plan},
                1, order);
      EXPECT_EQ(plan.coding, wanted.coding);
      EXPECT_EQ(plan.first_bytes, first.size());
      EXPECT_EQ(BytesFor(plan.last_bits), last.size());
      if (plan.coding != wanted.coding) continue;
      ExpectPlane(first_planes, first);
      ExpectPlane(last_plane, last);
      ExpectDecoded(gaps, plan.coding, first_planes, last_plane, last.size(),
                    static_cast<uint32_t>(first.size()), order);
    }
  }
  return codings;
}

TEST(CudaPositions, OneOrAllOrNone) {
  ExpectSamePositions({});
  for (const uint32_t gap : {0u, 1u, 7u, 254u, 255u, 256u, 65534u, 65535u, 65536u, 1000000u}) {
    ExpectSamePositions({gap});
    ExpectSamePositions({0, gap});
    ExpectSamePositions({gap, 0, gap});
  }
  for (const size_t kept : {1, 15, 16, 17, 255, 256, 257, 5000}) {
    ExpectSamePositions(std::vector<uint32_t>(kept, 0));
  }
}

TEST(CudaPositions, AllCodings) {
  std::set<int> seen;
  for (uint32_t round = 0; round < 160; ++round) {
    const CounterRandom random(round);
    const uint32_t kept = 1 + random.At(0) % (round % 8 == 0 ? 3000 : 700);
    const uint32_t mean = 1u << (round % 12);
    std::vector<uint32_t> gaps(kept);
    for (uint32_t i = 0; i < kept; ++i) {
      const uint64_t draw = random.At(i + 1);
      // The gaps are geometric, uniform, equal or clustered, or a few are much larger than the
      // others.
      switch (round / 12 % 6) {
        case 0:
          gaps[i] = static_cast<uint32_t>(-std::log((draw % 1000 + 1) / 1001.0) * mean * 1.4);
          break;
        case 1:
          gaps[i] = static_cast<uint32_t>(draw % (2 * mean));
          break;
        case 2:
          gaps[i] = mean - 1;
          break;
        case 3:
          gaps[i] = static_cast<uint32_t>(draw % (i / 32 % 3 == 0 ? 4 * mean : 2));
          break;
        case 4:
          gaps[i] = static_cast<uint32_t>(draw % 100 == 0 ? draw % 70000 : draw % mean);
          break;
        default:
          gaps[i] = static_cast<uint32_t>(i == kept / 2 ? 3000000 + draw % 1000 : draw % mean);
      }
    }
    seen.merge(ExpectSamePositions(gaps));
    ASSERT_FALSE(HasFatalFailure()) << "round " << round;
  }
  const auto any = [&](int first, int end) {
    return seen.lower_bound(first) != seen.lower_bound(end);
  };
  EXPECT_TRUE(seen.contains(0));
  EXPECT_TRUE(any(1, 32));
  EXPECT_TRUE(any(32, 64));
  EXPECT_TRUE(any(65, 72));
  EXPECT_TRUE(seen.contains(72));
  EXPECT_TRUE(any(73, 96));
  EXPECT_TRUE(seen.contains(96));
}

}  // namespace
}  // namespace sluice::compress::gpu
