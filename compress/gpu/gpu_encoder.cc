// SPDX-License-Identifier: Apache-2.0
#include "compress/gpu/gpu_encoder.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compress/codecs/sparse.h"
#include "compress/gpu/batch.h"
#include "compress/gpu/coding.h"
#include "compress/gpu/device_buffer.h"
#include "compress/gpu/device_residuals.h"
#include "compress/gpu/gpu_adder.h"
#include "compress/gpu/kernels/codes.h"

namespace sluice::compress::gpu {
namespace {

constexpr uint32_t kBins = MagnitudeHistogram::kBins;

// Returns true if the kernels need each chunk's largest magnitude, which takes an additional pass
// over the data.
bool NeedsLargest(const Batch& batch, const Batch::Work& work) {
  if (work.coding.algorithm == Algorithm::kPowerSgd) return true;
  if (work.coding.algorithm != Algorithm::kIntSum) return false;
  // intsum has no exponents in the first step, or for chunks that have contained only zeros.
  return std::any_of(work.tasks.begin(), work.tasks.end(), [&](size_t task) {
    const absl::Span<const float> exponents = batch.tasks[task].state;
    return std::any_of(exponents.begin(), exponents.end(), [](float x) { return !(x >= 1); });
  });
}

// Makes the device wait for events. Chunks of the same tensor share an event and are usually
// adjacent.
class EventOrder {
 public:
  explicit EventOrder(Device* device) : device_(device) {}
  void After(void* event) {
    if (event != last_) device_->After(event);
    last_ = event;
  }

 private:
  Device* const device_;
  void* last_ = nullptr;
};

class GpuEncoder final : public DeviceEncoder {
 public:
  GpuEncoder(Device* device, size_t chunks);

  bool Encodes(const CodecSpec& spec) const override;
  absl::Status Encode(absl::Span<const Task> tasks, std::vector<Encoded>* encoded) override;
  absl::Status WriteResidual(size_t chunk, absl::Span<const float> values) override {
    return residuals_.Write(chunk, values);
  }
  bool has_residual(size_t chunk) const override { return residuals_.of(chunk) != nullptr; }
  absl::Status ReadResidual(size_t chunk, absl::Span<float> values) override {
    return residuals_.Read(chunk, values);
  }

 private:
  absl::Status Prepare(Batch* batch);
  absl::Status OwnThresholds(Batch* batch);
  absl::Status SampleWithoutRefused(Batch* batch);
  void PlaceMatrices(const Batch& batch, const Batch::Work& work);
  void Launch(Batch* batch);
  absl::Status FetchPayloads(Batch* batch, std::vector<Encoded>* encoded);

  Device* const device_;
  DeviceResiduals residuals_;
  DeviceBuffer inputs_, results_, scratch_, payloads_, states_;
  DeviceBuffer host_inputs_, host_results_, host_payloads_, host_states_;
};

GpuEncoder::GpuEncoder(Device* device, size_t chunks)
    : device_(device),
      residuals_(device, chunks),
      inputs_(device, false),
      results_(device, false),
      scratch_(device, false),
      payloads_(device, false),
      states_(device, false),
      host_inputs_(device, true),
      host_results_(device, true),
      host_payloads_(device, true),
      host_states_(device, true) {}

bool GpuEncoder::Encodes(const CodecSpec& spec) const {
  const CompensatorId compensator = spec.compensator.id;
  return CodingOf(spec, 1, 0).has_value() && spec.values != ValueFormat::kTwoBit &&
         (compensator == CompensatorId::kNone ||
          (compensator == CompensatorId::kErrorFeedback && spec.compensator.level == 0));
}

absl::Status GpuEncoder::Prepare(Batch* batch) {
  absl::Status status = payloads_.Reserve(batch->payloads.size());
  for (DeviceBuffer* const buffer : {&inputs_, &host_inputs_}) {
    status.Update(buffer->Reserve(batch->inputs.size()));
  }
  for (DeviceBuffer* const buffer : {&results_, &host_results_}) {
    status.Update(buffer->Reserve(batch->results.size()));
  }
  for (DeviceBuffer* const buffer : {&states_, &host_states_}) {
    status.Update(buffer->Reserve(batch->states.size()));
  }
  status.Update(scratch_.Reserve(batch->scratch));
  for (size_t i = 0; i < batch->tasks.size() && status.ok(); ++i) {
    const Task& task = batch->tasks[i];
    Batch::Place& place = batch->places[i];
    Chunk& chunk = batch->ChunkOf(i);
    chunk.payload = At<uint8_t>(payloads_, place.payload_at);
    chunk.refused = At<uint32_t>(results_, batch->refused_at) + i;
    if (task.spec->compensator.id != CompensatorId::kErrorFeedback) continue;
    // Even a lossless codec sends a residual that another codec left.
    if (task.codec->lossless() && residuals_.of(task.chunk) == nullptr) continue;
    status = residuals_.Make(task.chunk, task.count);
    status.Update(residuals_.Take(task.count, &place.left));
    chunk.residual = residuals_.of(task.chunk);
    chunk.left = place.left;
  }
  if (!status.ok()) return status;
  device_->Clear(results_.data(), batch->results.size());
  EventOrder order(device_);
  for (const Task& task : batch->tasks) order.After(task.gradient.ready);
  return absl::OkStatus();
}

// Computes a threshold for each chunk that has none yet, from the chunk's own values. This happens
// in a job's first step.
absl::Status GpuEncoder::OwnThresholds(Batch* batch) {
  std::vector<size_t> without;
  for (size_t i = 0; i < batch->tasks.size(); ++i) {
    const Task& task = batch->tasks[i];
    if (batch->CodingOfTask(i).algorithm != Algorithm::kThreshold) continue;
    const bool has_own = task.codec->density() == 0;
    const float threshold = has_own ? static_cast<float>(task.spec->level) : task.threshold;
    batch->thresholds[i] = UsableThreshold(threshold);
    if (!has_own && !(threshold > 0)) without.push_back(i);
  }
  if (without.empty()) return absl::OkStatus();
  // The memory is freed afterwards, because it is needed only once.
  DeviceBuffer memory(device_, false), host(device_, true);
  Offsets offsets;
  const size_t chunks_at = offsets.Add<Chunk>(without.size());
  const size_t strides_at = offsets.Add<uint32_t>(without.size());
  const size_t counts_at = offsets.Add<uint32_t>(without.size() * kBins);
  for (DeviceBuffer* const buffer : {&memory, &host}) {
    absl::Status reserved = buffer->Reserve(offsets.size());
    if (!reserved.ok()) return reserved;
  }
  for (size_t j = 0; j < without.size(); ++j) {
    const Task& task = batch->tasks[without[j]];
    At<Chunk>(host, chunks_at)[j] = batch->ChunkOf(without[j]);
    At<uint32_t>(host, strides_at)[j] =
        static_cast<uint32_t>(MagnitudeHistogram::StrideOf(task.count));
  }
  device_->CopyIn(memory.data(), host.data(), counts_at);
  device_->Clear(memory.data() + counts_at, offsets.size() - counts_at);
  for (size_t j = 0; j < without.size(); ++j) {
    SampleWork work;
    work.gradient = batch->tasks[without[j]].gradient.type;
    work.chunks = At<Chunk>(memory, chunks_at) + j;
    work.chunk_count = 1;
    work.strides = At<uint32_t>(memory, strides_at) + j;
    work.counts = At<uint32_t>(memory, counts_at) + j * kBins;
    device_->Run(work);
  }
  device_->CopyOut(host.data() + counts_at, memory.data() + counts_at, offsets.size() - counts_at);
  absl::Status done = WaitFor(device_);
  if (!done.ok()) return done;
  for (size_t j = 0; j < without.size(); ++j) {
    const Task& task = batch->tasks[without[j]];
    MagnitudeHistogram own;
    own.AddCounts({At<uint32_t>(host, counts_at) + j * kBins, kBins});
    const double density = task.density > 0 ? task.density : task.codec->density();
    batch->thresholds[without[j]] = UsableThreshold(own.ThresholdFor(density));
  }
  return absl::OkStatus();
}

// Places the matrices and the states from which their iterations continue.
void GpuEncoder::PlaceMatrices(const Batch& batch, const Batch::Work& work) {
  size_t size = 0;
  const Scratch scratch = ScratchOf(work, scratch_, &size);
  for (size_t j = 0; j < work.matrices.size(); ++j) {
    const size_t state_at = batch.places[work.tasks[j]].state_at;
    LowRankMatrix& matrix = At<LowRankMatrix>(host_inputs_, work.matrices_at)[j];
    matrix = work.matrices[j];
    matrix.p = scratch.values + work.chunks[j].first_element;
    matrix.q = At<float>(states_, state_at);
    const absl::Span<const float> state = batch.tasks[work.tasks[j]].state;
    std::copy(state.begin(), state.end(), At<float>(host_states_, state_at));
  }
  std::copy(work.row_tiles.begin(), work.row_tiles.end(),
            At<Tile>(host_inputs_, work.row_tiles_at));
  std::copy(work.column_tiles.begin(), work.column_tiles.end(),
            At<Tile>(host_inputs_, work.column_tiles_at));
}

void GpuEncoder::Launch(Batch* batch) {
  for (const Batch::Work& work : batch->works) {
    std::copy(work.chunks.begin(), work.chunks.end(), At<Chunk>(host_inputs_, work.chunks_at));
    std::copy(work.tiles.begin(), work.tiles.end(), At<Tile>(host_inputs_, work.tiles_at));
    if (work.coding.algorithm == Algorithm::kPowerSgd) PlaceMatrices(*batch, work);
    for (size_t j = 0; j < work.tasks.size(); ++j) {
      const Task& task = batch->tasks[work.tasks[j]];
      At<float>(host_inputs_, work.thresholds_at)[j] = batch->thresholds[work.tasks[j]];
      if (HasPlaces(work.coding.algorithm)) {
        At<uint32_t>(host_inputs_, work.places_at)[j] = PlacesOf(*task.spec, task.count);
      }
      if (work.coding.algorithm != Algorithm::kIntSum) continue;
      const absl::Span<const float> state = task.state;
      std::copy(state.begin(), state.end(),
                At<float>(host_inputs_, work.exponents_at) + work.chunks[j].first_block);
    }
  }
  for (const Batch::Sample& sample : batch->samples) {
    for (size_t j = 0; j < sample.tasks.size(); ++j) {
      At<Chunk>(host_inputs_, sample.chunks_at)[j] = batch->ChunkOf(sample.tasks[j]);
      At<uint32_t>(host_inputs_, sample.strides_at)[j] = sample.strides[j];
    }
  }
  device_->CopyIn(inputs_.data(), host_inputs_.data(), batch->inputs.size());
  device_->CopyIn(states_.data(), host_states_.data(), batch->states.size());
  for (const Batch::Sample& sample : batch->samples) {
    SampleWork work;
    work.gradient = sample.gradient;
    work.chunks = At<Chunk>(inputs_, sample.chunks_at);
    work.chunk_count = static_cast<uint32_t>(sample.tasks.size());
    work.strides = At<uint32_t>(inputs_, sample.strides_at);
    work.counts = At<uint32_t>(results_, sample.counts_at);
    device_->Run(work);
  }
  for (const Batch::Work& planned : batch->works) {
    EncodeWork work;
    work.coding = planned.coding;
    work.gradient = planned.gradient;
    work.chunks = At<Chunk>(inputs_, planned.chunks_at);
    work.chunk_count = static_cast<uint32_t>(planned.chunks.size());
    work.tiles = At<Tile>(inputs_, planned.tiles_at);
    work.tile_count = static_cast<uint32_t>(planned.tiles.size());
    work.thresholds = At<float>(inputs_, planned.thresholds_at);
    work.places = At<uint32_t>(inputs_, planned.places_at);
    work.exponents = At<float>(inputs_, planned.exponents_at);
    if (NeedsLargest(*batch, planned)) work.largest = At<uint32_t>(results_, planned.largest_at);
    work.sizes = At<uint32_t>(results_, planned.sizes_at);
    work.kept = At<uint32_t>(results_, planned.kept_at);
    size_t size = 0;
    if (NeedsScratch(planned.coding.algorithm)) work.scratch = ScratchOf(planned, scratch_, &size);
    work.matrices = At<LowRankMatrix>(inputs_, planned.matrices_at);
    work.row_tiles = At<Tile>(inputs_, planned.row_tiles_at);
    work.row_tile_count = static_cast<uint32_t>(planned.row_tiles.size());
    work.column_tiles = At<Tile>(inputs_, planned.column_tiles_at);
    work.column_tile_count = static_cast<uint32_t>(planned.column_tiles.size());
    device_->Run(work);
  }
  device_->CopyOut(host_results_.data(), results_.data(), batch->results.size());
  device_->CopyOut(host_states_.data(), states_.data(), batch->states.size());
}

// Counts magnitudes again without those of refused chunks. The old residuals are still unchanged.
absl::Status GpuEncoder::SampleWithoutRefused(Batch* batch) {
  const uint32_t* const refused = At<uint32_t>(host_results_, batch->refused_at);
  for (const Batch::Sample& sample : batch->samples) {
    Chunk* const chunks = At<Chunk>(host_inputs_, sample.chunks_at);
    uint32_t* const strides = At<uint32_t>(host_inputs_, sample.strides_at);
    uint32_t left = 0;
    for (size_t j = 0; j < sample.tasks.size(); ++j) {
      if (refused[sample.tasks[j]] != 0) continue;
      chunks[left] = chunks[j];
      strides[left++] = strides[j];
    }
    if (left == sample.tasks.size()) continue;
    device_->Clear(At<uint32_t>(results_, sample.counts_at), kBins * sizeof(uint32_t));
    SampleWork work;
    work.gradient = sample.gradient;
    work.chunks = At<Chunk>(inputs_, sample.chunks_at);
    work.chunk_count = left;
    work.strides = At<uint32_t>(inputs_, sample.strides_at);
    work.counts = At<uint32_t>(results_, sample.counts_at);
    device_->CopyIn(inputs_.data() + sample.chunks_at, chunks, left * sizeof(Chunk));
    device_->CopyIn(inputs_.data() + sample.strides_at, strides, left * sizeof(uint32_t));
    if (left > 0) device_->Run(work);
  }
  const size_t bytes = batch->results.size() - batch->samples_at;
  device_->CopyOut(host_results_.data() + batch->samples_at, results_.data() + batch->samples_at,
                   bytes);
  return WaitFor(device_);
}

absl::Status GpuEncoder::FetchPayloads(Batch* batch, std::vector<Encoded>* encoded) {
  absl::Status reserved = host_payloads_.Reserve(batch->payloads.size());
  if (!reserved.ok()) return reserved;
  encoded->assign(batch->tasks.size(), {});
  for (size_t i = 0; i < batch->tasks.size(); ++i) {
    Encoded& one = (*encoded)[i];
    const Batch::Place& place = batch->places[i];
    const Batch::Work& work = batch->works[place.work];
    one.refused = At<uint32_t>(host_results_, batch->refused_at)[i] != 0;
    if (one.refused) continue;
    const Task& task = batch->tasks[i];
    const size_t most = task.codec->MaxPayloadSize(task.count, task.rows) - place.before;
    const size_t size = HasOwnSize(work.coding.algorithm)
                            ? At<uint32_t>(host_results_, work.sizes_at)[place.index]
                            : most;
    Check(size <= most, "a payload is within its codec's bound");
    if (IsSparse(work.coding.algorithm)) {
      one.kept = At<uint32_t>(host_results_, work.kept_at)[place.index];
    }
    std::byte* const payload = host_payloads_.data() + place.payload_at;
    device_->CopyOut(payload, payloads_.data() + place.payload_at, size);
    std::fill_n(payload - place.before, place.before, std::byte{0});
    one.payload = {payload - place.before, size + place.before};
  }
  return WaitFor(device_);
}

absl::Status GpuEncoder::Encode(absl::Span<const Task> tasks, std::vector<Encoded>* encoded) {
  Batch batch(tasks);
  absl::Status status = Prepare(&batch);
  if (status.ok()) status = OwnThresholds(&batch);
  if (status.ok()) {
    Launch(&batch);
    status = WaitFor(device_);
  }
  if (status.ok()) status = FetchPayloads(&batch, encoded);
  const auto is_refused = [](const Encoded& one) { return one.refused; };
  if (status.ok() && std::any_of(encoded->begin(), encoded->end(), is_refused)) {
    status = SampleWithoutRefused(&batch);
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    float* const left = batch.places[i].left;
    if (left == nullptr) continue;
    if (status.ok() && !(*encoded)[i].refused) {
      residuals_.Replace(tasks[i].chunk, left);
    } else {
      residuals_.Give(left, tasks[i].count);
    }
  }
  if (!status.ok()) return status;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const bool moves = batch.CodingOfTask(i).algorithm == Algorithm::kPowerSgd;
    if (!moves || (*encoded)[i].refused) continue;
    const auto* const state = At<float>(host_states_, batch.places[i].state_at);
    std::copy_n(state, tasks[i].state.size(), tasks[i].state.data());
  }
  for (const Batch::Sample& sample : batch.samples) {
    sample.magnitudes->AddCounts({At<uint32_t>(host_results_, sample.counts_at), kBins});
  }
  return absl::OkStatus();
}

class GpuEncodingDevice final : public EncodingDevice {
 public:
  explicit GpuEncodingDevice(std::unique_ptr<Device> device)
      : device_(std::move(device)), adder_(device_.get()), copies_(device_.get(), true) {}

  std::unique_ptr<DeviceEncoder> MakeEncoder(size_t chunks) override {
    return std::make_unique<GpuEncoder>(device_.get(), chunks);
  }
  absl::Status Read(absl::Span<const DeviceRead> reads,
                    std::vector<const std::byte*>* copies) override;
  absl::Status Add(absl::Span<const DeviceSum> sums, void* ready) override {
    return adder_.Add(sums, ready);
  }

 private:
  const std::unique_ptr<Device> device_;
  GpuAdder adder_;
  DeviceBuffer copies_;
};

absl::Status GpuEncodingDevice::Read(absl::Span<const DeviceRead> reads,
                                     std::vector<const std::byte*>* copies) {
  Offsets offsets;
  std::vector<size_t> places;
  for (const DeviceRead& read : reads) places.push_back(offsets.Add<std::byte>(read.bytes));
  absl::Status reserved = copies_.Reserve(offsets.size());
  if (!reserved.ok()) return reserved;
  copies->clear();
  EventOrder order(device_.get());
  for (size_t i = 0; i < reads.size(); ++i) {
    order.After(reads[i].gradient.ready);
    auto* const copy = At<std::byte>(copies_, places[i]);
    device_->CopyOut(copy, reads[i].gradient.data, reads[i].bytes);
    copies->push_back(copy);
  }
  return WaitFor(device_.get());
}

}  // namespace

std::unique_ptr<EncodingDevice> MakeEncodingDevice(std::unique_ptr<Device> device) {
  return std::make_unique<GpuEncodingDevice>(std::move(device));
}

}  // namespace sluice::compress::gpu
