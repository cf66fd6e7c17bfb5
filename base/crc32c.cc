#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace sluice {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // Reflected.

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

#if defined(__x86_64__)
[[gnu::target("sse4.2")]] uint32_t ExtendSse42(uint32_t crc, const std::byte* data, size_t size) {
  uint64_t state = crc;
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    state = _mm_crc32_u64(state, word);
  }
  crc = static_cast<uint32_t>(state);
  for (; size > 0; ++data, --size) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(*data));
  return crc;
}
#endif

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, absl::Span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~ExtendSse42(~crc, bytes.data(), bytes.size());
#endif
  return ~ExtendPortable(~crc, bytes.data(), bytes.size());
}

}  // namespace sluice
