// SPDX-License-Identifier: Apache-2.0
#include "follow/chunk_coding.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "compress/coding/payload.h"
#include "compress/coding/position_coding.h"
#include "follow/ordered_bits.h"
#include "follow/step_coding.h"

namespace sluice::follow {
namespace {

using compress::LoadAt;
using compress::PositionReader;
using compress::StoreAt;

// The changed elements of a chunk.
struct Changes {
  std::vector<uint32_t> gaps;
  std::vector<Step> steps;
};

template <typename Word>
void FindChanges(absl::Span<const std::byte> before, absl::Span<const std::byte> after,
                 Changes* changes) {
  const size_t count = before.size() / sizeof(Word);
  constexpr size_t kAtOnce = sizeof(uint64_t) / sizeof(Word);
  size_t next = 0;
  const auto compare = [&](size_t i) {
    const Word from = LoadAt<Word>(before.data(), i), to = LoadAt<Word>(after.data(), i);
    if (from == to) return;
    changes->gaps.push_back(static_cast<uint32_t>(i - next));
    changes->steps.push_back(StepBetween(from, to));
    next = i + 1;
  };
  size_t i = 0;
  for (; i + kAtOnce <= count; i += kAtOnce) {
    if (LoadAt<uint64_t>(before.data(), i / kAtOnce) ==
        LoadAt<uint64_t>(after.data(), i / kAtOnce)) {
      continue;
    }
    for (size_t j = 0; j < kAtOnce; ++j) compare(i + j);
  }
  for (; i < count; ++i) compare(i);
}

struct SparsePlanes {
  compress::PositionPlanes positions;
  StepPlanes steps;
};

absl::string_view ReadSparse(compress::ElementType type, absl::Span<const std::byte> payload,
                             size_t count, SparsePlanes* planes) {
  ByteReader reader(payload);
  const absl::string_view problem = ReadPositions(&reader, count, &planes->positions);
  if (!problem.empty()) return problem;
  if (planes->positions.kept == 0) return "it lists no element";
  const uint32_t magnitude_max =
      type == compress::ElementType::kFloat32 ? kTopBit<uint32_t> : uint32_t{kTopBit<uint16_t>};
  return ReadSteps(&reader, planes->positions.kept, magnitude_max, &planes->steps);
}

template <typename Word>
void ApplySparse(const SparsePlanes& planes, absl::Span<std::byte> weights) {
  uint32_t positions[PositionReader::kBatch];
  Step steps[PositionReader::kBatch];
  PositionReader position_reader(planes.positions);
  StepReader step_reader(planes.steps);
  while (const size_t count = position_reader.Read(positions)) {
    step_reader.Read(count, steps);
    for (size_t i = 0; i < count; ++i) {
      const Word before = LoadAt<Word>(weights.data(), positions[i]);
      StoreAt(weights.data(), positions[i], TakeStep(before, steps[i]));
    }
  }
}

}  // namespace

ChunkMethod AppendChunk(compress::ElementType type, absl::Span<const std::byte> before,
                        absl::Span<const std::byte> after, std::vector<std::byte>* payload) {
  Check(before.size() == after.size() && before.size() <= kChunkElements * BytesOf(type),
        "two versions of one chunk have the same size");
  if (before.empty() || std::memcmp(before.data(), after.data(), before.size()) == 0) {
    return ChunkMethod::kSame;
  }
  Changes changes;
  if (type == compress::ElementType::kFloat32) {
    FindChanges<uint32_t>(before, after, &changes);
  } else {
    FindChanges<uint16_t>(before, after, &changes);
  }
  const size_t at = payload->size();
  AppendPositions(changes.gaps, payload);
  AppendSteps(changes.steps, payload);
  if (payload->size() - at < after.size()) return ChunkMethod::kSparse;
  payload->resize(at);
  payload->insert(payload->end(), after.begin(), after.end());
  return ChunkMethod::kRaw;
}

absl::string_view ChunkProblem(compress::ElementType type, ChunkMethod method,
                               absl::Span<const std::byte> payload, size_t count) {
  switch (method) {
    case ChunkMethod::kSame:
      return payload.empty() ? "" : "it has bytes although nothing changed";
    case ChunkMethod::kRaw:
      return payload.size() == count * BytesOf(type) ? "" : "its size is not that of its weights";
    case ChunkMethod::kSparse: {
      SparsePlanes planes;
      return ReadSparse(type, payload, count, &planes);
    }
  }
  return "its method is unknown";
}

size_t ChangedElements(ChunkMethod method, absl::Span<const std::byte> payload, size_t count) {
  if (method == ChunkMethod::kSame) return 0;
  if (method == ChunkMethod::kRaw) return count;
  return LoadAt<uint32_t>(payload.data(), 0) & kNumberMask;
}

void ApplyChunk(compress::ElementType type, ChunkMethod method, absl::Span<const std::byte> payload,
                absl::Span<std::byte> weights) {
  if (method == ChunkMethod::kSame) return;
  if (method == ChunkMethod::kRaw) {
    if (!payload.empty()) std::memcpy(weights.data(), payload.data(), payload.size());
    return;
  }
  SparsePlanes planes;
  const absl::string_view problem =
      ReadSparse(type, payload, weights.size() / BytesOf(type), &planes);
  Check(problem.empty(), "ChunkProblem accepted the payload");
  if (type == compress::ElementType::kFloat32) return ApplySparse<uint32_t>(planes, weights);
  ApplySparse<uint16_t>(planes, weights);
}

}  // namespace sluice::follow
