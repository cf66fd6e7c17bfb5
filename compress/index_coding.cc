#include "compress/index_coding.h"

#include <algorithm>

#include "compress/vectorized.h"

namespace sluice {
namespace {

SLUICE_VECTORIZED uint64_t SumShifted(const uint32_t* numbers, size_t count, int shift) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += numbers[i] >> shift;
  return sum;
}

}  // namespace

RicePlan ChooseRice(absl::Span<const uint32_t> numbers) {
  if (numbers.empty()) return {};
  const size_t count = numbers.size();
  const uint64_t sum = SumShifted(numbers.data(), count, 0);
  const uint32_t largest = *std::max_element(numbers.begin(), numbers.end());
  // Geometric numbers of this mean want a parameter near log2(0.69 * mean).
  const int middle = static_cast<int>(std::bit_width((sum + count) * 11 / 16 / count));
  const int widest = std::min(static_cast<int>(std::bit_width(largest)), kRiceParameterMax);
  RicePlan best{.parameter = 0, .unary_bits = sum + count};
  uint64_t best_bits = best.unary_bits;
  for (const int parameter : {middle - 2, middle - 1, middle, widest}) {
    if (parameter < 1 || parameter > kRiceParameterMax) continue;
    const uint64_t unary = SumShifted(numbers.data(), count, parameter) + count;
    const uint64_t bits = unary + count * static_cast<uint64_t>(parameter);
    if (bits < best_bits) {
      best = {.parameter = parameter, .unary_bits = unary};
      best_bits = bits;
    }
  }
  return best;
}

void AppendRemainders(absl::Span<const uint32_t> numbers, int parameter,
                      std::vector<std::byte>* out) {
  if (parameter == 0) return;
  size_t at = out->size();
  out->resize(at + RemainderBytes(numbers.size(), parameter));
  const uint64_t mask = (uint64_t{1} << parameter) - 1;
  uint64_t word = 0;
  int filled = 0;
  for (const uint32_t number : numbers) {
    word |= (number & mask) << filled;
    filled += parameter;
    for (; filled >= 8; filled -= 8, word >>= 8) (*out)[at++] = static_cast<std::byte>(word);
  }
  if (filled > 0) (*out)[at] = static_cast<std::byte>(word);
}

void AppendUnary(absl::Span<const uint32_t> numbers, const RicePlan& plan,
                 std::vector<std::byte>* out) {
  const size_t start = out->size();
  out->resize(start + BytesFor(plan.unary_bits));
  std::byte* const plane = out->data() + start;
  uint64_t bit = 0;
  for (const uint32_t number : numbers) {
    bit += number >> plan.parameter;
    plane[bit / 8] |= static_cast<std::byte>(1 << (bit % 8));
    ++bit;
  }
}

bool IsPadded(absl::Span<const std::byte> plane, uint64_t bits) {
  if (plane.size() != BytesFor(bits)) return false;
  return bits % 8 == 0 || (static_cast<unsigned>(plane.back()) >> (bits % 8)) == 0;
}

bool IsUnaryPlane(absl::Span<const std::byte> unary, size_t count) {
  if (count == 0) return unary.empty();
  if (unary.empty() || unary.back() == std::byte{0}) return false;
  uint64_t ones = 0;
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= unary.size(); at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, unary.data() + at, sizeof(word));
    ones += static_cast<uint64_t>(std::popcount(word));
  }
  for (; at < unary.size(); ++at) {
    ones += static_cast<uint64_t>(std::popcount(static_cast<unsigned>(unary[at])));
  }
  return ones == count;
}

}  // namespace sluice
