// SPDX-License-Identifier: Apache-2.0
#include "sluice/codec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/conversions.h"
#include "compress/codec_table.h"
#include "compress/compressor.h"
#include "compress/frame.h"
#include "job/momentum.h"
#include "protocol/compression_spec.h"
#include "protocol/layout.h"

namespace sluice::client {

struct Codec::State {
  std::string spec;
  protocol::Layout layout;
  compress::Compressor compressor;
  uint64_t elements = 0;
  uint64_t step = 1;
};

std::vector<CodecInfo> Codecs() {
  std::vector<CodecInfo> codecs;
  for (const compress::CodecEntry& entry : compress::Codecs()) {
    codecs.push_back({.name = std::string(entry.name),
                      .example = std::string(entry.example),
                      .summary = std::string(entry.summary)});
  }
  return codecs;
}

Result<std::string> CanonicalSpec(std::string_view spec) {
  const absl::StatusOr<compress::CodecSpec> parsed = compress::ParseCodecSpec(ToView(spec));
  if (!parsed.ok()) return FromStatus(parsed.status());
  return compress::ToString(*parsed);
}

Result<double> MomentumWith(std::string_view uplink, std::string_view downlink, double momentum) {
  double least = momentum;
  for (const std::string_view text : {uplink, downlink}) {
    const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(ToView(text));
    if (!spec.ok()) return FromStatus(spec.status());
    least = std::min(least, job::MomentumWith(*spec, {.base = momentum}));
  }
  return least;
}

Result<uint64_t> DecodedSize(std::span<const std::byte> frames) {
  absl::Span<const std::byte> rest(frames.data(), frames.size());
  uint64_t elements = 0;
  while (!rest.empty()) {
    const absl::Span<const std::byte> frame = compress::PopFrame(&rest);
    const absl::StatusOr<compress::FrameHeader> header = compress::ReadFrameHeader(frame);
    if (!header.ok()) return FromStatus(header.status());
    elements += header->count;
  }
  return elements;
}

Status DecodeAdd(std::span<const std::byte> frames, std::span<float> sum) {
  absl::Span<const std::byte> rest(frames.data(), frames.size());
  absl::Span<float> to(sum.data(), sum.size());
  while (!rest.empty()) {
    const absl::Span<const std::byte> frame = compress::PopFrame(&rest);
    const absl::StatusOr<compress::FrameHeader> header = compress::ReadFrameHeader(frame);
    if (!header.ok()) return FromStatus(header.status());
    if (header->count > to.size()) break;
    const absl::Status added = compress::DecodeAddFrame(frame, to.first(header->count));
    if (!added.ok()) return FromStatus(added);
    to.remove_prefix(header->count);
    if (to.empty() && rest.empty()) return {};
  }
  if (sum.empty() && frames.empty()) return {};
  return FromStatus(absl::InvalidArgumentError(
      absl::StrCat("the frames do not hold a tensor of ", sum.size(),
                   " elements: give decode the shape of the tensor that was encoded")));
}

Result<std::unique_ptr<Codec>> Codec::Create(std::string_view spec,
                                             const std::vector<int64_t>& shape, uint64_t seed,
                                             uint32_t sender) {
  const absl::StatusOr<compress::CodecSpec> parsed = compress::ParseCodecSpec(ToView(spec));
  if (!parsed.ok()) return FromStatus(parsed.status());
  const protocol::CompressionSpec compression{.uplink = *parsed,
                                              .downlink = {},
                                              .overrides = {},
                                              .min_elements = 0,
                                              .layout = {},
                                              .seed = seed};
  const protocol::TensorTable table = {
      {.name = "tensor", .shape = shape, .strides = {}, .dtype = protocol::DType::kFloat32}};
  absl::StatusOr<protocol::Layout> layout = protocol::BuildLayout(
      table, /*shards=*/1, compression.layout, protocol::WholeRows(compression, table));
  if (!layout.ok()) return FromStatus(layout.status());
  compress::Compressor compressor(
      protocol::ChunkConfigs(compression, table, *layout, protocol::Direction::kUplink),
      {.seed = seed, .sender = sender});
  return std::unique_ptr<Codec>(
      new Codec(std::make_unique<State>(State{.spec = compress::ToString(*parsed),
                                              .layout = *std::move(layout),
                                              .compressor = std::move(compressor),
                                              .elements = table[0].elements()})));
}

Codec::Codec(std::unique_ptr<State> state) : state_(std::move(state)) {}
Codec::~Codec() = default;

Result<std::vector<std::byte>> Codec::Encode(std::span<const float> gradient) {
  if (gradient.size() != state_->elements) {
    return FromStatus(absl::InvalidArgumentError(
        absl::StrCat("the codec was made for ", state_->elements, " elements, and this tensor has ",
                     gradient.size())));
  }
  const absl::Span<const float> all(gradient.data(), gradient.size());
  const std::vector<protocol::Chunk>& chunks = state_->layout.chunks;
  for (size_t id = 0; id < chunks.size(); ++id) {
    const absl::Status finite =
        state_->compressor.Check(id, all.subspan(chunks[id].offset, chunks[id].count));
    if (!finite.ok()) return FromStatus(finite);
  }
  std::vector<std::byte> frames;
  for (size_t id = 0; id < chunks.size(); ++id) {
    const absl::Status encoded = state_->compressor.Encode(
        id, state_->step, all.subspan(chunks[id].offset, chunks[id].count), &frames);
    if (!encoded.ok()) return FromStatus(encoded);
  }
  state_->compressor.EndStep(state_->step++);
  return frames;
}

std::vector<float> Codec::Residual() const {
  std::vector<float> residual(state_->elements, 0.0f);
  const std::vector<protocol::Chunk>& chunks = state_->layout.chunks;
  for (size_t id = 0; id < chunks.size(); ++id) {
    const absl::Span<const float> owed = state_->compressor.residual(id);
    std::copy(owed.begin(), owed.end(),
              residual.begin() + static_cast<ptrdiff_t>(chunks[id].offset));
  }
  return residual;
}

const std::string& Codec::spec() const { return state_->spec; }

}  // namespace sluice::client
