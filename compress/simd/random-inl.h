// SPDX-License-Identifier: Apache-2.0
// Random numbers as a function of a key and an index, computed one vector at a time. Included
// once per instruction set. docs/wire-format.md defines the formula.
#if defined(SLUICE_COMPRESS_SIMD_RANDOM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_COMPRESS_SIMD_RANDOM_INL_H_
#undef SLUICE_COMPRESS_SIMD_RANDOM_INL_H_
#else
#define SLUICE_COMPRESS_SIMD_RANDOM_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "base/random.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {

// The random numbers that belong to one key.
class IndexedRandom {
 public:
  explicit IndexedRandom(uint64_t key)
      : low_(static_cast<uint32_t>(MixBits(key))),
        high_(static_cast<uint32_t>(MixBits(key) >> 32)) {}

  // Returns 32 random bits for each of the indices index, index + 1 and so on. The function is an
  // integer hash (the finalizers of Wellons' lowbias32 and MurmurHash3) that mixes in half of
  // the key before each round.
  template <class DU>
  HWY_INLINE hwy::HWY_NAMESPACE::Vec<DU> At(DU d, uint32_t index) const {
    namespace hn = hwy::HWY_NAMESPACE;
    // Iota starts at 0, because the compiler builds one with a variable start lane by lane.
    auto x = hn::Add(hn::Iota(d, 0), hn::Set(d, index + low_));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(d, 0x7FEB352Du));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(d, 0x846CA68Bu));
    x = hn::Xor(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(d, high_));
    x = hn::Mul(x, hn::Set(d, 0x85EBCA6Bu));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<13>(x)), hn::Set(d, 0xC2B2AE35u));
    return hn::Xor(x, hn::ShiftRight<16>(x));
  }

 private:
  const uint32_t low_, high_;
};

}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#endif
