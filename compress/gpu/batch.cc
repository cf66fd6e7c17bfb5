// SPDX-License-Identifier: Apache-2.0
#include "compress/gpu/batch.h"

#include <algorithm>

#include "compress/gpu/coding.h"
#include "compress/gpu/kernels/codes.h"

namespace sluice::compress::gpu {

Batch::Batch(absl::Span<const Task> of) : tasks(of), places(of.size()), thresholds(of.size()) {
  for (size_t i = 0; i < tasks.size(); ++i) Add(tasks[i], i);
  refused_at = results.Add<uint32_t>(tasks.size());
  for (Work& work : works) LayOut(&work);
  samples_at = results.size();
  for (Sample& sample : samples) {
    sample.chunks_at = inputs.Add<Chunk>(sample.tasks.size());
    sample.strides_at = inputs.Add<uint32_t>(sample.tasks.size());
    sample.counts_at = results.Add<uint32_t>(MagnitudeHistogram::kBins);
  }
}

Batch::Work& Batch::WorkOf(const Task& task) {
  const Coding coding = *CodingOf(*task.spec, task.count, task.rows);
  for (Work& work : works) {
    if (work.coding == coding && work.gradient == task.gradient.type) return work;
  }
  Work& work = works.emplace_back();
  work.coding = coding;
  work.gradient = task.gradient.type;
  return work;
}

Batch::Sample& Batch::SampleOf(const Task& task) {
  for (Sample& sample : samples) {
    if (sample.magnitudes == task.magnitudes && sample.gradient == task.gradient.type) {
      return sample;
    }
  }
  Sample& sample = samples.emplace_back();
  sample.magnitudes = task.magnitudes;
  sample.gradient = task.gradient.type;
  return sample;
}

void Batch::Add(const Task& task, size_t index) {
  Work& work = WorkOf(task);
  Place& place = places[index];
  place.work = static_cast<size_t>(&work - works.data());
  place.index = work.tasks.size();
  place.before = BytesBefore(*task.spec, work.coding);
  // Kernels need aligned addresses.
  constexpr size_t kAligned = 16;
  const size_t room_before = place.before > 0 ? kAligned : 0;
  const size_t most = task.codec->MaxPayloadSize(task.count, task.rows);
  place.payload_at = payloads.Add<uint8_t>(room_before + most) + room_before;
  work.tasks.push_back(index);
  Chunk& chunk = work.chunks.emplace_back();
  chunk.gradient = task.gradient.data;
  chunk.scale = task.gradient.scale;
  chunk.count = static_cast<uint32_t>(task.count);
  chunk.own_key = task.own_key;
  chunk.shared_key = task.shared_key;
  chunk.first_block = work.blocks;
  chunk.first_element = work.blocks * kCodeBlock;
  constexpr uint32_t kBlocksApart = 4;
  work.blocks += (BlocksOf(chunk.count) + kBlocksApart - 1) / kBlocksApart * kBlocksApart;
  if (work.coding.algorithm == Algorithm::kPowerSgd) AddMatrix(task, &work, &place);
  if (task.magnitudes == nullptr) return;
  Sample& sample = SampleOf(task);
  sample.tasks.push_back(index);
  sample.strides.push_back(static_cast<uint32_t>(task.magnitude_stride));
}

void Batch::AddMatrix(const Task& task, Work* work, Place* place) {
  LowRankMatrix& matrix = work->matrices.emplace_back();
  matrix.rows = task.rows;
  matrix.columns = static_cast<uint32_t>(task.count / task.rows);
  place->state_at = states.Add<float>(task.state.size());
  const auto index = static_cast<uint32_t>(place->index);
  AppendTiles(index, matrix.rows, kTileRows, &work->row_tiles);
  AppendTiles(index, matrix.columns, kTileColumns, &work->column_tiles);
}

void Batch::LayOut(Work* work) {
  const size_t chunks = work->chunks.size();
  work->tiles = MakeTiles(work->chunks);
  work->chunks_at = inputs.Add<Chunk>(chunks);
  work->tiles_at = inputs.Add<Tile>(work->tiles.size());
  work->thresholds_at = inputs.Add<float>(chunks);
  if (HasPlaces(work->coding.algorithm)) work->places_at = inputs.Add<uint32_t>(chunks);
  if (work->coding.algorithm == Algorithm::kIntSum) {
    work->exponents_at = inputs.Add<float>(work->blocks);
  }
  work->matrices_at = inputs.Add<LowRankMatrix>(work->matrices.size());
  work->row_tiles_at = inputs.Add<Tile>(work->row_tiles.size());
  work->column_tiles_at = inputs.Add<Tile>(work->column_tiles.size());
  work->largest_at = results.Add<uint32_t>(chunks);
  work->sizes_at = results.Add<uint32_t>(chunks);
  work->kept_at = results.Add<uint32_t>(chunks);
  if (!NeedsScratch(work->coding.algorithm)) return;
  size_t needed = 0;
  ScratchOf(*work, DeviceBuffer(nullptr, false), &needed);
  scratch = std::max(scratch, needed);
}

Scratch ScratchOf(const Batch::Work& work, const DeviceBuffer& memory, size_t* size) {
  Offsets offsets;
  const size_t elements = work.blocks * size_t{kCodeBlock};
  Scratch scratch{};
  scratch.positions = At<uint32_t>(memory, offsets.Add<uint32_t>(elements));
  scratch.values = At<float>(memory, offsets.Add<float>(elements));
  scratch.packed_positions = At<uint32_t>(memory, offsets.Add<uint32_t>(elements));
  scratch.packed_values = At<float>(memory, offsets.Add<float>(elements));
  scratch.gaps = At<uint32_t>(memory, offsets.Add<uint32_t>(elements));
  scratch.kept = At<uint32_t>(memory, offsets.Add<uint32_t>(work.blocks));
  scratch.scales = At<uint32_t>(memory, offsets.Add<uint32_t>(work.blocks));
  *size = offsets.size();
  return scratch;
}

}  // namespace sluice::compress::gpu
