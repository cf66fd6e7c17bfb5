// SPDX-License-Identifier: Apache-2.0
#include "protocol/compression_spec.h"

#include <algorithm>

#include "absl/strings/string_view.h"
#include "compress/codec_table.h"

namespace sluice::protocol {
namespace {

// Returns true if the whole of `name` matches `pattern`, where * stands for any string and ? for
// any single character.
bool Matches(absl::string_view pattern, absl::string_view name) {
  size_t p = 0, n = 0;
  // The position of the last *, and the position in `name` where its match ends.
  size_t star = absl::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool WantsWholeRows(const compress::CodecSpec& spec) {
  return spec.codec == compress::CodecId::kPowerSgd || spec.has(compress::kBlockScope);
}

uint32_t UsualBundleElements(compress::CodecId codec) {
  using compress::CodecId;
  switch (codec) {
    case CodecId::kNone:
      return 1 << 18;
    case CodecId::kFp16:
    case CodecId::kBf16:
    case CodecId::kFp8:
    case CodecId::kInt8:
    case CodecId::kInt4:
    case CodecId::kNatural:
      return 1 << 19;
    default:
      return LayoutParameters{}.bundle_elements;
  }
}

}  // namespace

uint32_t UsualBundleElements(const compress::CodecSpec& uplink,
                             const compress::CodecSpec& downlink) {
  return std::min(UsualBundleElements(uplink.codec), UsualBundleElements(downlink.codec));
}

compress::CodecSpec SpecForTensor(const CompressionSpec& compression, const TensorInfo& tensor,
                                  Direction direction) {
  if (tensor.role == TensorRole::kBuffer) return {};
  const bool up = direction == Direction::kUplink;
  for (auto o = compression.overrides.rbegin(); o != compression.overrides.rend(); ++o) {
    const std::optional<compress::CodecSpec>& codec = up ? o->uplink : o->downlink;
    if (codec && Matches(o->tensors, tensor.name)) return *codec;
  }
  const compress::CodecSpec& usual = up ? compression.uplink : compression.downlink;
  const bool compresses =
      usual.codec != compress::CodecId::kNone && usual.codec != compress::CodecId::kBf16;
  if (!compresses || tensor.elements() >= compression.min_elements) return usual;
  compress::CodecSpec dense;
  dense.codec = compress::CodecId::kFp16;
  if (!usual.error_feedback() && !compress::TraitsOf(usual.codec, usual.options).unbiased) {
    dense.compensator.id = compress::CompensatorId::kNone;
  }
  return dense;
}

std::vector<bool> WholeRows(const CompressionSpec& compression, const TensorTable& table) {
  std::vector<bool> whole_rows;
  whole_rows.reserve(table.size());
  for (const TensorInfo& tensor : table) {
    bool wanted = false;
    for (const Direction direction : {Direction::kUplink, Direction::kDownlink}) {
      wanted = wanted || WantsWholeRows(SpecForTensor(compression, tensor, direction));
    }
    whole_rows.push_back(wanted);
  }
  return whole_rows;
}

std::vector<compress::ChunkConfig> ChunkConfigs(const CompressionSpec& compression,
                                                const TensorTable& table, const Layout& layout,
                                                Direction direction) {
  std::vector<compress::CodecSpec> specs;
  specs.reserve(table.size());
  for (const TensorInfo& tensor : table) {
    specs.push_back(SpecForTensor(compression, tensor, direction));
  }
  std::vector<compress::ChunkConfig> configs;
  configs.reserve(layout.chunks.size());
  for (const Chunk& chunk : layout.chunks) {
    configs.push_back({.count = chunk.count,
                       .spec = specs[chunk.tensor],
                       .id = static_cast<uint32_t>(configs.size()),
                       .tensor = chunk.tensor,
                       .rows = chunk.rows});
  }
  return configs;
}

}  // namespace sluice::protocol
