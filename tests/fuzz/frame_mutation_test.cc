// SPDX-License-Identifier: Apache-2.0
// Tests the property of frame_fuzz.cc on mutated and random frames, generated from a seed without a
// fuzzer.

#include "gtest/gtest.h"
#include "tests/compress/one_chunk.h"
#include "tests/fuzz/frame_property.h"

namespace sluice {
namespace {

constexpr uint64_t kSeed = 20261121;
constexpr int kRounds = 4000;  // Rounds per spec; the test takes about a second.

void Mutate(CounterRandom* random, std::vector<std::byte>* bytes) {
  const uint64_t changes = 1 + random->Below(4);
  for (uint64_t i = 0; i < changes && !bytes->empty(); ++i) {
    const size_t at = random->Below(bytes->size());
    switch (random->Below(6)) {
      case 0:
        (*bytes)[at] ^= static_cast<std::byte>(1 << random->Below(8));
        break;
      case 1:
        (*bytes)[at] = static_cast<std::byte>(random->Next());
        break;
      case 2:
        bytes->resize(at);
        break;
      case 3:
        bytes->insert(bytes->begin() + static_cast<std::ptrdiff_t>(at), std::byte{0xFF});
        break;
      case 4:
        bytes->erase(bytes->begin() + static_cast<std::ptrdiff_t>(at));
        break;
      default:
        // Decoders are most vulnerable to wrong values in fields that announce a size.
        (*bytes)[std::min(bytes->size() - 1, compress::kFrameHeaderSize + random->Below(14))] =
            random->Below(2) == 0 ? std::byte{0xFF} : std::byte{0};
    }
  }
}

TEST(FrameMutation, NoBytesDoHarm) {
  int accepted = 0;
  for (const std::string& spec : compress::TestedSpecs()) {
    const compress::LoneCodec codec(spec);
    for (int round = 0; round < kRounds; ++round) {
      SCOPED_TRACE(testing::Message()
                   << "seed " << kSeed << " spec " << spec << " round " << round);
      CounterRandom random(kSeed, static_cast<uint64_t>(round));
      const size_t count = random.Below(700);
      std::vector<std::byte> frame = codec.Encoded(compress::HeavyTailed(count, random.Next()));
      Mutate(&random, &frame);
      if (CheckFrameProperty(frame, count)) ++accepted;
    }
  }
  // Some changes affect only values, so their frames must be accepted. If all frames were refused,
  // the test would be useless.
  EXPECT_GT(accepted, 100);
}

TEST(FrameMutation, RandomBytesDoNoHarm) {
  for (int round = 0; round < 50000; ++round) {
    CounterRandom random(kSeed, static_cast<uint64_t>(round), 1);
    std::vector<std::byte> frame(random.Below(120));
    for (std::byte& byte : frame) {
      byte = random.Below(3) == 0 ? std::byte{0} : static_cast<std::byte>(random.Next());
    }
    if (frame.size() > 3) frame[3] = static_cast<std::byte>(random.Below(24));
    const uint32_t count = static_cast<uint32_t>(random.Below(300));
    if (frame.size() > 8) std::memcpy(frame.data() + 4, &count, sizeof(count));
    CheckFrameProperty(frame, count);
  }
}

}  // namespace
}  // namespace sluice
