// SPDX-License-Identifier: Apache-2.0
// Codec: compresses one sender's gradients of one tensor, step by step, without a job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/status.h"

namespace sluice::client {

struct CodecInfo {
  std::string name;
  std::string example;  // An example of a complete, valid spec.
  std::string summary;
};

[[gnu::visibility("default")]] std::vector<CodecInfo> Codecs();

// Returns the canonical form of a codec spec. Fails with INVALID_ARGUMENT if the spec is malformed;
// the message points at the error.
[[gnu::visibility("default")]] Result<std::string> CanonicalSpec(std::string_view spec);

// Returns the momentum that an optimizer should have with these codecs, if `momentum` is right
// without compression. Some codecs hold values back and so delay them, and momentum amplifies
// delay. Fails with INVALID_ARGUMENT if a spec is malformed.
[[gnu::visibility("default")]] Result<double> MomentumWith(std::string_view uplink,
                                                           std::string_view downlink,
                                                           double momentum);

// Decodes `frames` and adds the values to `sum`. Fails with INVALID_ARGUMENT or DATA_LOSS if
// `frames` are not the complete frames of a tensor of this size; the contents of `sum` are then
// undefined.
[[gnu::visibility("default")]] Status DecodeAdd(std::span<const std::byte> frames,
                                                std::span<float> sum);

// Returns the number of elements in all of `frames`.
[[gnu::visibility("default")]] Result<uint64_t> DecodedSize(std::span<const std::byte> frames);

// A sender's codec with its residual: values that compression drops are sent in a later step, if
// the spec has error feedback. Not thread-safe.
class [[gnu::visibility("default")]] Codec {
 public:
  // Creates a codec for a tensor of this shape; some codecs treat the tensor as a matrix. The
  // tensor is cut into chunks as in a job, and each chunk gets one frame. Equal seeds give equal
  // random numbers.
  static Result<std::unique_ptr<Codec>> Create(
      std::string_view spec, const std::vector<int64_t>& shape, uint64_t seed, uint32_t sender);
  ~Codec();
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  // Returns the frames of the next step's gradient. Fails with INVALID_ARGUMENT if the size differs
  // from the tensor's or an element is not finite; the codec's state is then unchanged.
  Result<std::vector<std::byte>> Encode(std::span<const float> gradient);
  // Returns, for each element, the dropped amount that a later step will send.
  std::vector<float> Residual() const;
  const std::string& spec() const;

 private:
  struct State;
  explicit Codec(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace sluice::client
