// SPDX-License-Identifier: Apache-2.0
// CodecFacts: the facts about a codec that control, momentum, warnings and GPUs use. The table of
// codecs (codec_table.h) has them in each row; a row that omits one does not compile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/required.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

namespace gpu {
struct Coding;
}

// Properties of a codec with given options, at any level.
struct CodecTraits {
  bool lossless = false;
  // The expected value of the decoded values equals the encoded values.
  bool unbiased = false;
  // The codec clips the few largest values. If it clips nothing, it is unbiased.
  bool clips = false;
  // |decoded - acc| <= |acc| in every case, so feedback is stable. A codec that is also unbiased
  // has this property only with feedback. There is one exception: random rounding in fp16:sr and
  // natural may turn values below the format's smallest value into that smallest value, which then
  // bounds the error.
  bool contractive = false;
  // The codec omits elements. They arrive in later steps or never.
  bool sparse = false;
};

// The cost of a codec in bytes, in error and in processor time. The times are those of one thread
// of a current server (bench/README.md).
struct CodecPrice {
  double bits = 32;      // Per element.
  double error = 0;      // Energy of (acc - decoded) divided by that of acc, with error feedback.
  double encode_ns = 0;  // Per element: encoding, feedback and checksum.
  double add_ns = 0;     // Per element: adding a frame to a sum or to parameters.
};

struct CodecFacts {
  Required<CodecTraits (*)(uint32_t options)> traits;
  // The bound that VarianceBound returns. Null for codecs that are never unbiased.
  Required<double (*)(const CodecSpec& spec)> variance;
  // Null for codecs that no plan may replace or choose. Frames of the other codecs can be summed
  // even if the codecs differ, and the only state that senders and receivers keep is the residual.
  Required<CodecPrice (*)(const CodecSpec& spec)> price;
  // True if a plan may set the density.
  Required<bool> density_in_plans;
  // The share of the values that the codec sends in a step with feedback. It is 1 if the codec
  // sends every value and the next step corrects the errors. A codec with one sign per value
  // carries so little information that it counts as the sparsest.
  Required<double (*)(const CodecSpec& spec)> share_sent;
  // True if the codec sends one sign per value.
  Required<bool> one_bit;
  // True for dense codecs with so few bits per value that a single step is mostly noise.
  Required<bool (*)(const CodecSpec& spec)> coarse;
  // Sets the algorithm for a chunk of `count` elements in `rows` rows. Null if GPUs have no kernels
  // for the codec.
  Required<void (*)(const CodecSpec& spec, size_t count, uint32_t rows, gpu::Coding* coding)> gpu;
};

// Returns the bits per element, for values and positions, of a sparse codec that sends the share
// `density` of all elements.
double SparseBits(double density, ValueFormat values);

}  // namespace sluice::compress
