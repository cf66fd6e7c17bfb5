// SPDX-License-Identifier: Apache-2.0
// Inputs for codec tests: seeded random numbers with the heavy tail of gradients.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/random.h"
#include "compress/codec_table.h"
#include "compress/frame.h"

namespace sluice::compress {

inline std::vector<float> HeavyTailed(size_t count, uint64_t seed, float scale = 1e-3f) {
  CounterRandom random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const double u = random.Uniform() - 0.5;
    // The value is a cubed logistic variable: many tiny values and a few large ones.
    const double x = std::log((0.5 + u * 0.999) / (0.5 - u * 0.999));
    value = scale * static_cast<float>(x * x * x);
  }
  return values;
}

// Returns the example of every codec in the table, and variants that the examples do not cover.
inline std::vector<std::string> TestedSpecs() {
  std::vector<std::string> specs;
  for (const CodecEntry& entry : Codecs()) specs.emplace_back(entry.example);
  for (const char* extra : {"fp16:sr",
                            "bf16:sr",
                            "fp8:e5m2",
                            "fp8:sr",
                            "fp8:e5m2,sr",
                            "int8:minmax",
                            "int8:sr",
                            "int8:minmax,sr",
                            "int4:minmax",
                            "int4:sr",
                            "int4:minmax,sr",
                            "int2:sr",
                            "topk:1%+int8",
                            "topk:1%,index=bytes+int4",
                            "topk:10%,index=bitmap+sign",
                            "topk:5%,index=packed+int8",
                            "topk:2%,scope=tensor,index=rice",
                            "topk_exact:3%,index=bytes",
                            "threshold:0.01,index=packed",
                            "ternary:0.5,index=bytes",
                            "ternary:0.7,index=bitmap",
                            "ternary:0.6,index=packed",
                            "ternary:0.4,index=rice",
                            "topk:100%,index=bytes+sign",
                            "topk:10%+sign",
                            "topk_exact:5%",
                            "topk_exact:1%,scope=block+2bit/ef:0.95",
                            "topk:5%+2bit",
                            "randomk:20%+2bit",
                            "threshold:0.01+int8",
                            "topk:5%",
                            "topk:0.1%",
                            "topk:100%",
                            "topk:100%+int4",
                            "ternary:0.9",
                            "ternary:0.01",
                            "ternary:1",
                            "qsgd:2",
                            "qsgd:3",
                            "qsgd:8",
                            "natural/ef",
                            "fp16:sr/ef",
                            "fp8:sr/ef",
                            "int8:sr/ef",
                            "intsum:2",
                            "intsum:8",
                            "eden:1",
                            "eden:4",
                            "eden:2/ef",
                            "eden:3/ef",
                            "powersgd:1",
                            "powersgd:32",
                            "countsketch:2x",
                            "countsketch:50x",
                            "blocktopk:4+int4",
                            "blocktopk:16+int8",
                            "blocktopk:4096",
                            "blocktopk:256+sign",
                            "randomk:5%,unbiased",
                            "randomk:100%",
                            "randomk:20%+int4",
                            "randomk:1%+sign",
                            "randomk:10%+int8"}) {
    specs.emplace_back(extra);
  }
  return specs;
}

inline std::unique_ptr<Codec> CodecFor(const std::string& spec) {
  return MakeCodec(*ParseCodecSpec(spec));
}

inline std::vector<float> Decode(absl::Span<const std::byte> frame, size_t count) {
  std::vector<float> values(count, 0.0f);
  const absl::Status status = DecodeAddFrame(frame, absl::MakeSpan(values));
  if (!status.ok()) values.clear();
  return values;
}

}  // namespace sluice::compress
