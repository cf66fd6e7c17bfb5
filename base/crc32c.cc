// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define SLUICE_CRC_INSTRUCTION gnu::target("sse4.2")
// Before version 16, clang declares the instructions only if all code is compiled for them.
#elif defined(__aarch64__) && (!defined(__clang__) || __clang_major__ >= 16)
#include <arm_acle.h>
#include <sys/auxv.h>
#define SLUICE_CRC_INSTRUCTION gnu::target("+crc")
#endif

namespace sluice {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // The polynomial's bits in reflected order.

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

uint32_t ExtendPortable(uint32_t crc, const std::byte* data, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    crc = kTable[(crc ^ static_cast<uint32_t>(data[i])) & 0xFF] ^ (crc >> 8);
  }
  return crc;
}

#ifdef SLUICE_CRC_INSTRUCTION
#if defined(__x86_64__)
bool HasInstruction() { return __builtin_cpu_supports("sse4.2"); }
[[SLUICE_CRC_INSTRUCTION]] inline uint64_t AddWord(uint64_t state, uint64_t word) {
  return _mm_crc32_u64(state, word);
}
[[SLUICE_CRC_INSTRUCTION]] inline uint32_t AddByte(uint32_t state, uint8_t byte) {
  return _mm_crc32_u8(state, byte);
}
#else
bool HasInstruction() {
  static const bool has = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
  return has;
}
[[SLUICE_CRC_INSTRUCTION]] inline uint64_t AddWord(uint64_t state, uint64_t word) {
  return __crc32cd(static_cast<uint32_t>(state), word);
}
[[SLUICE_CRC_INSTRUCTION]] inline uint32_t AddByte(uint32_t state, uint8_t byte) {
  return __crc32cb(state, byte);
}
#endif

// The CRC instruction takes three cycles, but the processor can start one in each cycle. Therefore
// the loop processes three lanes of kLane bytes side by side. The effect of kLane zero bytes on a
// state is linear, so a table of this effect is enough to combine the lanes' states.
constexpr size_t kLane = 1024;

using LaneShift = std::array<std::array<uint32_t, 256>, 4>;

constexpr LaneShift MakeLaneShift() {
  LaneShift shift{};
  for (int bit = 0; bit < 32; ++bit) {
    uint32_t state = uint32_t{1} << bit;
    for (size_t i = 0; i < kLane; ++i) state = kTable[state & 0xFF] ^ (state >> 8);
    std::array<uint32_t, 256>& table = shift[bit / 8];
    for (uint32_t value = 0; value < 256; ++value) {
      if ((value >> (bit % 8) & 1) != 0) table[value] ^= state;
    }
  }
  return shift;
}
constexpr LaneShift kLaneShift = MakeLaneShift();

uint32_t ShiftByLane(uint64_t state) {
  return kLaneShift[0][state & 0xFF] ^ kLaneShift[1][state >> 8 & 0xFF] ^
         kLaneShift[2][state >> 16 & 0xFF] ^ kLaneShift[3][state >> 24 & 0xFF];
}

uint64_t LoadWord(const std::byte* data) {
  uint64_t word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}

[[SLUICE_CRC_INSTRUCTION]] uint32_t ExtendByInstruction(uint32_t crc, const std::byte* data,
                                                        size_t size) {
  uint64_t state = crc;
  for (; size >= 3 * kLane; data += 3 * kLane, size -= 3 * kLane) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kLane; i += 8) {
      state = AddWord(state, LoadWord(data + i));
      second = AddWord(second, LoadWord(data + kLane + i));
      third = AddWord(third, LoadWord(data + 2 * kLane + i));
    }
    state = ShiftByLane(ShiftByLane(state) ^ second) ^ third;
  }
  for (; size >= 8; data += 8, size -= 8) state = AddWord(state, LoadWord(data));
  crc = static_cast<uint32_t>(state);
  for (; size > 0; ++data, --size) crc = AddByte(crc, static_cast<uint8_t>(*data));
  return crc;
}
#endif

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, absl::Span<const std::byte> bytes) {
#ifdef SLUICE_CRC_INSTRUCTION
  if (HasInstruction()) return ~ExtendByInstruction(~crc, bytes.data(), bytes.size());
#endif
  return ~ExtendPortable(~crc, bytes.data(), bytes.size());
}

}  // namespace sluice
