// SPDX-License-Identifier: Apache-2.0
// Tests that the kernels that add frames with positions give the same sums as a receiver.
#include "compress/gpu/kernels/add_sparse.h"

#include <algorithm>
#include <cstring>

#include "compress/format_table.h"
#include "compress/gpu/kernels/add_placed.h"
#include "tests/compress/gpu/kernels/encoded.h"

namespace sluice::compress::gpu {
namespace {

template <class Kernel>
void ExpectSameSumAddSparse(const std::string& spec, float threshold = 0) {
  for (const ThreadOrder order : kOrders) {
    Made made(spec, false, threshold);
    const uint32_t chunks = made.chunk_count();
    std::vector<std::vector<float>> sums(chunks), wanted(chunks);
    std::vector<uint32_t> sizes(chunks);
    for (uint32_t i = 0; i < chunks; ++i) {
      Chunk& chunk = made.mutable_chunks()[i];
      const std::vector<std::byte>& payload = made.made(i).expected;
      sums[i] = wanted[i] = MadeUp(i / 3, chunk.count, i);  // The sums include zeros of both signs.
      std::memcpy(chunk.payload, payload.data(), payload.size());
      // These bytes reveal reads beyond the end of the payload.
      std::fill_n(chunk.payload + payload.size(), 16, uint8_t{0xFF});
      chunk.sum = sums[i].data();
      sizes[i] = static_cast<uint32_t>(payload.size());
      FindFormat(made.codec().format())->decode_add(payload, absl::MakeSpan(wanted[i]));
    }
    std::vector<uint32_t> ends(made.elements(), 7), offsets(ends), positions(ends);
    const AddScratch scratch{ends.data(), offsets.data(), positions.data()};
    if constexpr (std::is_aggregate_v<Kernel> && requires(Kernel kernel) { kernel.sizes; }) {
      RunOnHost(Kernel{made.chunks(), sizes.data(), scratch}, chunks, order);
    } else {
      RunOnHost(Kernel{made.chunks()}, chunks, order);
    }
    for (uint32_t i = 0; i < chunks; ++i) {
      ASSERT_EQ(std::memcmp(sums[i].data(), wanted[i].data(), 4 * sums[i].size()), 0)
          << spec << ", chunk " << i << ", " << sums[i].size() << " elements";
    }
  }
}

constexpr const char* kIndexes[] = {"rice", "packed", "bytes", "bitmap"};

TEST(CudaAddSparse, AllValues) {
  for (const char* values : {"", "+int8", "+int4", "+sign", "+2bit"}) {
    for (const char* threshold : {"0.5", "0.003", "0.00001"}) {
      ExpectSameSumAddSparse<AddSparse>(std::string("threshold:") + threshold + values);
    }
    ExpectSameSumAddSparse<AddSparse>(std::string("topk_exact:1%") + values);
  }
}

TEST(CudaAddSparse, AllCodings) {
  for (const char* index : kIndexes) {
    const std::string spec = std::string("topk:1%,index=") + index;
    for (const float tau : {1.0f, 0.0078125f, 0.00001525878906f}) {
      ExpectSameSumAddSparse<AddSparse>(spec, tau);
      ExpectSameSumAddSparse<AddSparse>(spec + "+sign", tau);
    }
  }
}

TEST(CudaAddSparse, Ternary) {
  for (const char* share : {"0.5", "0.9", "1", "0.0000001"}) {
    ExpectSameSumAddSparse<AddTernary>(std::string("ternary:") + share);
  }
  for (const char* index : kIndexes) {
    ExpectSameSumAddSparse<AddTernary>(std::string("ternary:0.7,index=") + index);
  }
}

TEST(CudaAddSparse, ValuesWithPlaces) {
  for (const char* values : {"", "+int8", "+int4", "+sign", "+2bit"}) {
    for (const char* places : {"4", "256", "4096"}) {
      ExpectSameSumAddSparse<AddBlockTopK>(std::string("blocktopk:") + places + values);
    }
    for (const char* places : {"5%", "100%"}) {
      ExpectSameSumAddSparse<AddRandomK>(std::string("randomk:") + places + values);
    }
  }
  ExpectSameSumAddSparse<AddRandomK>("randomk:30%,unbiased");
}

TEST(CudaAddSparse, NumberAt) {
  const std::vector<uint8_t> plane = {0x21, 0x43, 0x65, 0x87, 0xA9, 0xCB, 0xED, 0x0F};
  EXPECT_EQ(NumberAt(plane.data(), 15, 4), 0u);
  EXPECT_EQ(NumberAt(plane.data(), 14, 4), 0xFu);
  EXPECT_EQ(NumberAt(plane.data(), 3, 0), 0u);
  EXPECT_EQ(NumberAt(plane.data(), 1, 31),
            static_cast<uint32_t>(uint64_t{0x0FEDCBA987654321} >> 31 & 0x7FFFFFFF));
}

}  // namespace
}  // namespace sluice::compress::gpu
