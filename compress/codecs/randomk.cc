// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/randomk.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/random.h"
#include "compress/coding/placed_values.h"

namespace sluice::compress {
namespace {

// Generates the random positions, in ascending order. If n elements are cut into k strata, stratum
// j begins at element floor(j n / k).
class Strata {
 public:
  Strata(uint64_t key, size_t count, size_t k)
      : random_(key), k_(k), size_(k == 0 ? 0 : count / k), odd_(k == 0 ? 0 : count % k) {}

  struct Place {
    size_t position;
    // Number of elements in the stratum.
    size_t stratum;
  };
  Place Next() {
    carry_ += odd_;
    const size_t stratum = size_ + (carry_ >= k_ ? 1 : 0);
    if (carry_ >= k_) carry_ -= k_;
    const Place place{static_cast<size_t>(begin_ + random_.Below(stratum)), stratum};
    begin_ += stratum;
    return place;
  }

 private:
  CounterRandom random_;
  const size_t k_, size_, odd_;
  size_t begin_ = 0;
  size_t carry_ = 0;
};

float Saturated(float value) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return std::clamp(value, -kMax, kMax);
}

class RandomKCodec final : public Codec {
 public:
  RandomKCodec(double density, bool unbiased, ValueFormat format)
      : density_(density), unbiased_(unbiased), format_(format) {}

  FormatId format() const override { return FormatId::kRandomK; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override {
    return sizeof(uint32_t) + sizeof(uint64_t) +
           MaxPlacedBytes(format_, RandomKPlaces(density_, count));
  }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const size_t count = input.gradient.size();
    const size_t k = RandomKPlaces(density_, count);
    EncodeScratch& scratch = *input.scratch;
    if (scratch.positions.size() < k) scratch.positions.resize(k);
    if (scratch.values.size() < k) scratch.values.resize(k);
    const absl::Span<float> values = absl::MakeSpan(scratch.values).first(k);
    for (size_t i = 0; i < input.residual.size(); ++i) input.residual[i] += input.gradient[i];
    const absl::Span<const float> acc = input.residual.empty() ? input.gradient : input.residual;
    Strata strata(input.shared_key, count, k);
    for (size_t j = 0; j < k; ++j) {
      const Strata::Place place = strata.Next();
      scratch.positions[j] = static_cast<uint32_t>(place.position);
      values[j] = acc[place.position];
      if (unbiased_) values[j] = Saturated(values[j] * static_cast<float>(place.stratum));
    }
    ByteWriter writer(out);
    writer.Write(static_cast<uint32_t>(k));
    writer.Write(input.shared_key);
    const size_t at = out->size();
    AppendPlaced(format_, values, &scratch, out);
    if (input.kept != nullptr) *input.kept += k;
    if (!input.residual.empty()) KeepRest(input, absl::MakeConstSpan(*out).subspan(at), values);
  }

 private:
  // Subtracts the sent values from the residual, which holds acc. `lost` contains the rounding
  // error of each value.
  void KeepRest(const EncodeInput& input, absl::Span<const std::byte> placed,
                absl::Span<const float> lost) const {
    const std::vector<uint32_t>& positions = input.scratch->positions;
    if (!unbiased_) {
      for (size_t j = 0; j < lost.size(); ++j) input.residual[positions[j]] = lost[j];
      return;
    }
    ByteReader reader(placed);
    PlacedValues sent;
    Check(ReadPlaced(&reader, lost.size(), &sent).empty(), "it was just written");
    ForEachPlaced(sent, [&](size_t j, float value) { input.residual[positions[j]] -= value; });
  }

  const double density_;
  const bool unbiased_;
  const ValueFormat format_;
};

// The parts of a payload.
struct RandomKParts {
  uint32_t k = 0;
  uint64_t key = 0;
  PlacedValues values;
};

// Splits the payload. Returns a description of the error, or an empty string.
absl::string_view SplitRandomK(absl::Span<const std::byte> payload, size_t count,
                               RandomKParts* parts) {
  ByteReader reader(payload);
  parts->k = reader.Read<uint32_t>();
  parts->key = reader.Read<uint64_t>();
  if (!reader.ok()) return "it is too short";
  if (parts->k > count || (parts->k == 0 && count > 0)) {
    return "it has no values, or more than the chunk has elements";
  }
  const absl::string_view wrong = ReadPlaced(&reader, parts->k, &parts->values);
  if (!wrong.empty()) return wrong;
  return reader.remaining() == 0 ? "" : "it has bytes after its values";
}

}  // namespace

std::unique_ptr<Codec> MakeRandomK(const CodecSpec& spec) {
  Check(spec.level > 0 && spec.level <= 1, "a density is above 0 and at most 1");
  return std::make_unique<RandomKCodec>(spec.level, spec.has(kUnbiased), spec.values);
}

size_t RandomKPlaces(double density, size_t count) {
  return std::min(count, static_cast<size_t>(std::ceil(density * static_cast<double>(count))));
}

absl::Status ValidateRandomK(absl::Span<const std::byte> payload, size_t count) {
  RandomKParts parts;
  const absl::string_view wrong = SplitRandomK(payload, count, &parts);
  if (wrong.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("randomk payload: ", wrong));
}

void DecodeAddRandomK(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  RandomKParts parts;
  Check(SplitRandomK(payload, sum.size(), &parts).empty(), "only validated payloads are decoded");
  Strata strata(parts.key, sum.size(), parts.k);
  size_t drawn = 0;
  size_t position = 0;
  ForEachPlaced(parts.values, [&](size_t place, float value) {
    for (; drawn <= place; ++drawn) position = strata.Next().position;
    sum[position] += value;
  });
}

}  // namespace sluice::compress
