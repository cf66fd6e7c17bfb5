// SPDX-License-Identifier: Apache-2.0
#include "protocol/checkpoint/snapshot_pieces.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace sluice::protocol {
namespace {

constexpr size_t kChunkFixedSize = 24;  // Size of a chunk's fields without its state.
constexpr size_t kListFixedSize = 10;   // Size of a list without its name and numbers.
constexpr size_t kPlanFixedSize = 22;   // Size of a plan without its reason and entries.
constexpr size_t kEntryFixedSize = 11;  // Size of an entry without its codec and numbers.
// Marks a plan without a momentum, in a list where another plan has one.
constexpr float kNoMomentum = -1;

// --- Writing ---

size_t SizeOf(const compress::SavedState& state) {
  size_t size = 4;
  for (const auto& [name, values] : state) {
    size += kListFixedSize + name.size() + values.size() * sizeof(float);
  }
  return size;
}

void AppendState(const compress::SavedState& state, std::string* out) {
  Append(static_cast<uint32_t>(state.size()), out);
  for (const auto& [name, values] : state) {
    Append(static_cast<uint16_t>(name.size()), out);
    out->append(name);
    Append(uint64_t{values.size()}, out);
    out->append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
}

void AppendText(absl::string_view text, std::string* out) {
  Append(static_cast<uint16_t>(text.size()), out);
  out->append(text.data(), text.size());
}

void AppendIndices(const std::vector<uint32_t>& indices, std::string* out) {
  Append(static_cast<uint32_t>(indices.size()), out);
  for (const uint32_t index : indices) Append(index, out);
}

// --- Reading ---

absl::Status ReadName(ByteReader* reader, std::string* name) {
  const absl::Span<const std::byte> bytes = reader->ReadBytes(reader->Read<uint16_t>());
  if (!reader->ok()) return absl::DataLossError("it ends within a name");
  name->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return absl::OkStatus();
}

absl::Status ReadState(ByteReader* reader, compress::SavedState* state) {
  const auto lists = reader->Read<uint32_t>();
  if (!reader->ok()) return absl::DataLossError("it ends before a state");
  for (uint32_t i = 0; i < lists; ++i) {
    std::string name;
    absl::Status read = ReadName(reader, &name);
    if (!read.ok()) return read;
    const auto count = reader->Read<uint64_t>();
    if (!reader->ok() || count > reader->remaining() / sizeof(float)) {
      return absl::DataLossError(absl::StrCat("it ends within list ", absl::CHexEscape(name)));
    }
    if (!state->empty() && name <= state->rbegin()->first) {
      return absl::DataLossError(absl::StrCat("list ", absl::CHexEscape(name), " is out of order"));
    }
    const absl::Span<const std::byte> bytes = reader->ReadBytes(count * sizeof(float));
    std::vector<float> values(count);
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    state->emplace_hint(state->end(), std::move(name), std::move(values));
  }
  return absl::OkStatus();
}

absl::Status ReadSpecs(ByteReader* reader, std::vector<compress::CodecSpec>* specs) {
  const auto count = reader->Read<uint32_t>();
  std::map<std::string, size_t> seen;
  for (uint32_t i = 0; i < count; ++i) {
    std::string text;
    absl::Status read = ReadName(reader, &text);
    if (!read.ok()) return read;
    const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(text);
    if (!spec.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("this program does not know its codec: ", spec.status().message()));
    }
    if (ToString(*spec) != text || !seen.emplace(text, i).second) {
      return absl::DataLossError(absl::StrCat("codec ", text, " is written in a different form"));
    }
    specs->push_back(*spec);
  }
  return absl::OkStatus();
}

absl::Status ReadIndices(ByteReader* reader, std::vector<uint32_t>* indices) {
  const auto count = reader->Read<uint32_t>();
  if (!reader->ok() || count > reader->remaining() / sizeof(uint32_t)) {
    return absl::DataLossError("it ends within a list of numbers");
  }
  indices->resize(count);
  for (uint32_t& index : *indices) index = reader->Read<uint32_t>();
  return absl::OkStatus();
}

absl::Status ReadPlanEntry(ByteReader* reader, PlanEntry* entry) {
  const auto direction = reader->Read<uint8_t>();
  std::string text;
  absl::Status read = ReadName(reader, &text);
  if (!read.ok()) return read;
  const absl::StatusOr<compress::CodecSpec> codec = compress::ParseCodecSpec(text);
  if (direction > 1 || !codec.ok() || ToString(*codec) != text) {
    return absl::DataLossError(absl::StrCat("a plan's entry is of direction ", direction,
                                            " and codec ", absl::CHexEscape(text)));
  }
  entry->direction = direction == 0 ? Direction::kUplink : Direction::kDownlink;
  entry->codec = *codec;
  read = ReadIndices(reader, &entry->tensors);
  return read.ok() ? ReadIndices(reader, &entry->ranks) : read;
}

}  // namespace

size_t SizeOf(const std::vector<compress::SavedState>& states) {
  size_t size = 8;
  for (const compress::SavedState& state : states) size += SizeOf(state);
  return size;
}

SpecTexts CollectSpecs(const compress::SavedCompressor& saved) {
  SpecTexts specs;
  specs.of_chunk.reserve(saved.chunks.size());
  std::map<std::string, uint32_t> indices;
  // Neighbouring chunks usually have the same codec, so its text is reused.
  const compress::CodecSpec* last = nullptr;
  for (const compress::SavedCompressor::Chunk& chunk : saved.chunks) {
    const compress::CodecSpec& spec = chunk.config.spec;
    if (last != nullptr && *last == spec) {
      specs.of_chunk.push_back(specs.of_chunk.back());
      continue;
    }
    std::string text = ToString(spec);
    const auto [found, is_new] = indices.emplace(text, static_cast<uint32_t>(indices.size()));
    if (is_new) specs.texts.push_back(std::move(text));
    specs.of_chunk.push_back(found->second);
    last = &spec;
  }
  return specs;
}

size_t SizeOf(const compress::SavedCompressor& saved, const SpecTexts& specs) {
  size_t size = 12 + SizeOf(saved.groups);
  for (const std::string& text : specs.texts) size += 2 + text.size();
  for (const compress::SavedCompressor::Chunk& chunk : saved.chunks) {
    size += kChunkFixedSize + SizeOf(chunk.state);
  }
  return size;
}

void AppendStates(const std::vector<compress::SavedState>& states, std::string* out) {
  Append(uint64_t{states.size()}, out);
  for (const compress::SavedState& state : states) AppendState(state, out);
}

void AppendCompressor(const compress::SavedCompressor& saved, const SpecTexts& specs,
                      std::string* out) {
  Append(static_cast<uint32_t>(specs.texts.size()), out);
  for (const std::string& text : specs.texts) {
    Append(static_cast<uint16_t>(text.size()), out);
    out->append(text);
  }
  Append(uint64_t{saved.chunks.size()}, out);
  for (size_t i = 0; i < saved.chunks.size(); ++i) {
    const compress::ChunkConfig& config = saved.chunks[i].config;
    Append(uint64_t{config.count}, out);
    Append(specs.of_chunk[i], out);
    Append(config.id, out);
    Append(config.tensor, out);
    Append(config.rows, out);
    AppendState(saved.chunks[i].state, out);
  }
  AppendStates(saved.groups, out);
}

size_t SizeOf(const std::vector<CompressionPlan>& plans) {
  size_t size = 4;
  for (const CompressionPlan& plan : plans) {
    size += kPlanFixedSize + plan.reason.size();
    for (const PlanEntry& entry : plan.entries) {
      size += kEntryFixedSize + ToString(entry.codec).size() +
              sizeof(uint32_t) * (entry.tensors.size() + entry.ranks.size());
    }
  }
  return size;
}

void AppendPlans(const std::vector<CompressionPlan>& plans, std::string* out) {
  Append(static_cast<uint32_t>(plans.size()), out);
  for (const CompressionPlan& plan : plans) {
    Append(plan.id, out);
    Append(plan.effective_step, out);
    AppendText(plan.reason, out);
    Append(static_cast<uint32_t>(plan.entries.size()), out);
    for (const PlanEntry& entry : plan.entries) {
      Append(static_cast<uint8_t>(entry.direction == Direction::kDownlink), out);
      AppendText(ToString(entry.codec), out);
      AppendIndices(entry.tensors, out);
      AppendIndices(entry.ranks, out);
    }
  }
}

bool HaveMomentum(const std::vector<CompressionPlan>& plans) {
  return std::any_of(plans.begin(), plans.end(),
                     [](const CompressionPlan& plan) { return plan.momentum.has_value(); });
}

void AppendMomenta(const std::vector<CompressionPlan>& plans, std::string* out) {
  for (const CompressionPlan& plan : plans) Append(plan.momentum.value_or(kNoMomentum), out);
}

absl::Status ReadStates(ByteReader* reader, std::vector<compress::SavedState>* states) {
  const auto count = reader->Read<uint64_t>();
  if (!reader->ok() || count > reader->remaining() / 4) {
    return absl::DataLossError(absl::StrCat("it has no room for ", count, " states"));
  }
  states->resize(count);
  for (compress::SavedState& state : *states) {
    absl::Status read = ReadState(reader, &state);
    if (!read.ok()) return read;
  }
  return absl::OkStatus();
}

absl::Status ReadPlans(ByteReader* reader, std::vector<CompressionPlan>* plans) {
  const auto count = reader->Read<uint32_t>();
  if (!reader->ok() || count > reader->remaining() / kPlanFixedSize) {
    return absl::DataLossError(absl::StrCat("it has no room for ", count, " plans"));
  }
  plans->resize(count);
  for (CompressionPlan& plan : *plans) {
    plan.id = reader->Read<uint64_t>();
    plan.effective_step = reader->Read<uint64_t>();
    absl::Status read = ReadName(reader, &plan.reason);
    if (!read.ok()) return read;
    const auto entries = reader->Read<uint32_t>();
    if (!reader->ok() || entries > reader->remaining() / kEntryFixedSize) {
      return absl::DataLossError(absl::StrCat("it has no room for ", entries, " entries"));
    }
    plan.entries.resize(entries);
    for (PlanEntry& entry : plan.entries) {
      read = ReadPlanEntry(reader, &entry);
      if (!read.ok()) return read;
    }
  }
  // A job without plans would have written an earlier version.
  return plans->empty() ? absl::DataLossError("it has no plan") : absl::OkStatus();
}

absl::Status ReadMomenta(ByteReader* reader, std::vector<CompressionPlan>* plans) {
  for (CompressionPlan& plan : *plans) {
    const auto momentum = reader->Read<float>();
    if (!reader->ok()) return absl::DataLossError("it has fewer momenta than there are plans");
    if (momentum == kNoMomentum) continue;
    // The condition also rejects NaN.
    if (!(momentum >= 0 && momentum < 1)) {
      return absl::DataLossError(absl::StrCat("it has a momentum of ", momentum));
    }
    plan.momentum = momentum;
  }
  // A list without any momentum would have been written in an earlier version.
  return HaveMomentum(*plans) ? absl::OkStatus() : absl::DataLossError("it has no momentum");
}

absl::Status ReadCompressor(ByteReader* reader, compress::SavedCompressor* saved) {
  std::vector<compress::CodecSpec> specs;
  absl::Status read = ReadSpecs(reader, &specs);
  if (!read.ok()) return read;
  const auto count = reader->Read<uint64_t>();
  if (!reader->ok() || count > reader->remaining() / (kChunkFixedSize + 4)) {
    return absl::DataLossError(absl::StrCat("it has no room for ", count, " chunks"));
  }
  saved->chunks.resize(count);
  uint32_t used = 0;  // Codecs are numbered in the order of their first use.
  for (compress::SavedCompressor::Chunk& chunk : saved->chunks) {
    chunk.config.count = reader->Read<uint64_t>();
    const auto spec = reader->Read<uint32_t>();
    chunk.config.id = reader->Read<uint32_t>();
    chunk.config.tensor = reader->Read<uint32_t>();
    chunk.config.rows = reader->Read<uint32_t>();
    if (spec > used || spec >= specs.size()) {
      return absl::DataLossError(absl::StrCat("a chunk names codec ", spec, ", after ", used,
                                              " of ", specs.size(), " were used"));
    }
    if (spec == used) ++used;
    chunk.config.spec = specs[spec];
    read = ReadState(reader, &chunk.state);
    if (!read.ok()) return read;
  }
  if (used != specs.size()) {
    return absl::DataLossError(absl::StrCat("of ", specs.size(), " codecs ", used, " are used"));
  }
  return ReadStates(reader, &saved->groups);
}

}  // namespace sluice::protocol
