// SPDX-License-Identifier: Apache-2.0
#include "compress/coding/index_coding.h"

#include <algorithm>

namespace sluice::compress {
namespace {

uint64_t SumShifted(const uint32_t* numbers, size_t count, int shift) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += numbers[i] >> shift;
  return sum;
}

}  // namespace

RicePlan ChooseRice(absl::Span<const uint32_t> numbers) {
  if (numbers.empty()) return {};
  return ChooseRice(numbers.size(), *std::max_element(numbers.begin(), numbers.end()),
                    [&](int shift) { return SumShifted(numbers.data(), numbers.size(), shift); });
}

void AppendRemainders(absl::Span<const uint32_t> numbers, int parameter,
                      std::vector<std::byte>* out) {
  if (parameter == 0 || numbers.empty()) return;
  const size_t at = out->size(), size = RemainderBytes(numbers.size(), parameter);
  out->resize(at + size + kPackSlack);
  PackBits(numbers.data(), numbers.size(), parameter, reinterpret_cast<uint8_t*>(out->data()) + at);
  out->resize(at + size);
}

void AppendUnary(absl::Span<const uint32_t> numbers, const RicePlan& plan,
                 std::vector<std::byte>* out) {
  const size_t at = out->size(), size = BytesFor(plan.unary_bits);
  out->resize(at + size + kPackSlack);
  SetOnes(numbers.data(), numbers.size(), plan.parameter, /*by_three=*/false,
          reinterpret_cast<uint8_t*>(out->data()) + at);
  out->resize(at + size);
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

void RiceReader::Fill() {
  uint32_t ones[kBatch + kOnesSlack];
  const auto* const unary = reinterpret_cast<const uint8_t*>(unary_.data());
  const auto* const remainders = reinterpret_cast<const uint8_t*>(remainders_.data());
  filled_ = FindOnes(unary, unary_.size(), kBatch, &cursor_, ones);
  const size_t at = done_ / 8 * static_cast<size_t>(parameter_);
  UnpackBits(remainders + at, remainders_.size() - at, filled_, parameter_, numbers_);
  for (size_t i = 0; i < filled_; ++i) {
    numbers_[i] |= static_cast<uint32_t>(ones[i] - next_) << parameter_;
    next_ = uint64_t{ones[i]} + 1;
  }
  done_ += filled_;
  at_ = 0;
}

}  // namespace sluice::compress
