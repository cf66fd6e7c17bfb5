// SPDX-License-Identifier: Apache-2.0
#include "compress/gpu/gpu_adder.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "compress/coding/payload.h"
#include "compress/format_table.h"
#include "compress/frame.h"

namespace sluice::compress::gpu {
namespace {

// Maximum number of payload bytes in one copy to the device.
constexpr size_t kBatchBytes = size_t{64} << 20;

bool HasEntries(Addend addend) { return addend == Addend::kSparse || addend == Addend::kTernary; }

// Reads the number of entries of a sparse or ternary payload. Both formats store this number at the
// same offset.
uint32_t Entries(absl::Span<const std::byte> payload) {
  return LoadAt<uint32_t>(payload.data() + 2, 0);
}

}  // namespace

// Sums that are updated together. A sum's second frame is added after the first frames of all sums.
struct GpuAdder::Batch {
  struct Frame {
    size_t at = 0;  // Offset of the payload in host_ and memory_.
    size_t count = 0;
    FormatId format = FormatId::kNone;
    absl::Span<const std::byte> payload;
    // True if the payload has been replaced by its decoded values.
    bool decoded = false;
  };
  struct Work {
    size_t round = 0;
    AddendKind kind;
    std::vector<Chunk> chunks;
    std::vector<uint32_t> sizes;
    std::vector<Frame> frames;
    std::vector<Tile> tiles;
    uint32_t entries = 0;
    size_t chunks_at = 0, tiles_at = 0, sizes_at = 0;
  };

  std::vector<Work> works;
  Offsets offsets;

  Work& WorkOf(size_t round, AddendKind kind) {
    for (Work& work : works) {
      if (work.round == round && work.kind == kind) return work;
    }
    Work& work = works.emplace_back();
    work.round = round;
    work.kind = kind;
    return work;
  }
  Chunk& ChunkIn(Work* work, const DeviceSum& sum) {
    Chunk& chunk = work->chunks.emplace_back();
    chunk.sum = sum.sum;
    chunk.count = static_cast<uint32_t>(sum.count);
    return chunk;
  }

  void Take(const DeviceSum& sum) {
    size_t round = 0;
    if (sum.from_zero) ChunkIn(&WorkOf(round, {Addend::kNothing}), sum);
    for (absl::Span<const std::byte> rest = sum.frames; !rest.empty();) {
      const absl::Span<const std::byte> bytes = PopFrame(&rest);
      Frame frame;
      frame.count = sum.count;
      frame.format = FrameFormat(bytes).id;
      frame.payload = FramePayload(bytes);
      const AddendKind kind = FrameFormat(bytes).on_gpu(frame.payload);
      if (kind.addend == Addend::kNothing) continue;
      if (frame.format == FormatId::kLowRank && kind.addend == Addend::kFp16) {
        frame.payload.remove_prefix(1);
      }
      frame.decoded = kind.addend == Addend::kFp32 && frame.format != FormatId::kNone;
      Work& work = WorkOf(++round, kind);
      Chunk& chunk = ChunkIn(&work, sum);
      const size_t size = frame.decoded ? sum.count * sizeof(float) : frame.payload.size();
      frame.at = offsets.Add<uint8_t>(size);
      work.frames.push_back(frame);
      if (!HasEntries(kind.addend)) continue;
      chunk.first_element = work.entries;
      work.entries += Entries(frame.payload);
      work.sizes.push_back(static_cast<uint32_t>(size));
    }
  }
};

absl::Status GpuAdder::Run(Batch* batch) {
  uint32_t entries = 0;
  for (Batch::Work& work : batch->works) {
    work.tiles = MakeTiles(work.chunks);
    work.chunks_at = batch->offsets.Add<Chunk>(work.chunks.size());
    work.tiles_at = batch->offsets.Add<Tile>(work.tiles.size());
    work.sizes_at = batch->offsets.Add<uint32_t>(work.sizes.size());
    entries = std::max(entries, work.entries);
  }
  Offsets scratch;
  const size_t ends_at = scratch.Add<uint32_t>(entries);
  const size_t offsets_at = scratch.Add<uint32_t>(entries);
  const size_t positions_at = scratch.Add<uint32_t>(entries);
  absl::Status reserved = scratch_.Reserve(scratch.size());
  reserved.Update(memory_.Reserve(batch->offsets.size()));
  reserved.Update(host_.Reserve(batch->offsets.size()));
  if (!reserved.ok()) return reserved;
  for (Batch::Work& work : batch->works) {
    for (size_t i = 0; i < work.frames.size(); ++i) {
      const Batch::Frame& frame = work.frames[i];
      work.chunks[i].payload = At<uint8_t>(memory_, frame.at);
      if (!frame.decoded) {
        std::copy(frame.payload.begin(), frame.payload.end(), At<std::byte>(host_, frame.at));
        continue;
      }
      const absl::Span<float> values(At<float>(host_, frame.at), frame.count);
      // Decoding starts from -0.0, because adding -0.0 changes no sum. This matters for elements
      // that the payload does not contain.
      std::fill(values.begin(), values.end(), -0.0f);
      FindFormat(frame.format)->decode_add(frame.payload, values);
    }
    std::copy(work.chunks.begin(), work.chunks.end(), At<Chunk>(host_, work.chunks_at));
    std::copy(work.tiles.begin(), work.tiles.end(), At<Tile>(host_, work.tiles_at));
    std::copy(work.sizes.begin(), work.sizes.end(), At<uint32_t>(host_, work.sizes_at));
  }
  device_->CopyIn(memory_.data(), host_.data(), batch->offsets.size());
  std::stable_sort(batch->works.begin(), batch->works.end(),
                   [](const Batch::Work& a, const Batch::Work& b) { return a.round < b.round; });
  for (const Batch::Work& planned : batch->works) {
    AddWork work;
    work.addend = planned.kind.addend;
    work.bits = planned.kind.bits;
    work.chunks = At<Chunk>(memory_, planned.chunks_at);
    work.chunk_count = static_cast<uint32_t>(planned.chunks.size());
    work.tiles = At<Tile>(memory_, planned.tiles_at);
    work.tile_count = static_cast<uint32_t>(planned.tiles.size());
    work.sizes = At<uint32_t>(memory_, planned.sizes_at);
    work.ends = At<uint32_t>(scratch_, ends_at);
    work.offsets = At<uint32_t>(scratch_, offsets_at);
    work.positions = At<uint32_t>(scratch_, positions_at);
    device_->Run(work);
  }
  return WaitFor(device_);
}

absl::Status GpuAdder::Add(absl::Span<const DeviceSum> sums, void* ready) {
  device_->After(ready);
  Batch batch;
  for (const DeviceSum& sum : sums) {
    batch.Take(sum);
    if (batch.offsets.size() < kBatchBytes) continue;
    absl::Status done = Run(&batch);
    if (!done.ok()) return done;
    batch = Batch();
  }
  return Run(&batch);
}

}  // namespace sluice::compress::gpu
