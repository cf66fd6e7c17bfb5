#include "compress/gpu/gpu_encoder.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/cuda/codes.h"
#include "compress/gpu/device_buffer.h"
#include "compress/gpu/gpu_adder.h"
#include "compress/position_coding.h"
#include "compress/randomk.h"
#include "compress/sparse.h"

namespace sluice::gpu {
namespace {

constexpr uint32_t kBins = MagnitudeHistogram::kBins;
constexpr uint32_t kBlocksApart = 4;  // Blocks of 256 begin at a multiple of it.

std::optional<Coding> CodingOf(const CodecSpec& spec) {
  const bool minmax = spec.has(kMinMax);
  Coding coding;
  coding.stochastic = spec.has(kStochastic);
  coding.index = IndexModeOf(spec);
  coding.values = static_cast<uint8_t>(spec.values);
  const auto of = [&](Algorithm algorithm, int bits = 0) {
    coding.algorithm = algorithm;
    coding.bits = static_cast<uint8_t>(bits);
    return coding;
  };
  switch (spec.codec) {
    case CodecId::kFp16:
      return of(Algorithm::kFp16);
    case CodecId::kBf16:
      return of(Algorithm::kBf16);
    case CodecId::kFp8:
      return of(spec.has(kE5m2) ? Algorithm::kFp8E5m2 : Algorithm::kFp8);
    case CodecId::kInt8:
      return of(minmax ? Algorithm::kMinMax : Algorithm::kLinear, 8);
    case CodecId::kInt4:
      return of(minmax ? Algorithm::kMinMax : Algorithm::kLinear, 4);
    case CodecId::kInt2:
      return of(Algorithm::kLinear, 2);
    case CodecId::kQsgd:
      return of(Algorithm::kQsgd, static_cast<int>(spec.level));
    case CodecId::kNatural:
      return of(Algorithm::kNatural);
    case CodecId::kIntSum:
      return of(Algorithm::kIntSum, static_cast<int>(spec.level));
    case CodecId::kSign:
      return of(Algorithm::kSign);
    case CodecId::kOneBit:
      return of(Algorithm::kOneBit);
    case CodecId::kSignSgd:
      return of(Algorithm::kSignSgd);
    case CodecId::kTernary:
      coding.share = static_cast<float>(spec.level);
      return of(Algorithm::kTernary);
    case CodecId::kTopK:
    case CodecId::kThreshold:
      return of(Algorithm::kThreshold);
    case CodecId::kBlockTopK:
      return of(Algorithm::kBlockTopK, std::countr_zero(static_cast<uint32_t>(spec.level)));
    case CodecId::kRandomK:
      coding.unbiased = spec.has(kUnbiased);
      return of(Algorithm::kRandomK);
    case CodecId::kEden:
      return of(Algorithm::kEden, static_cast<int>(spec.level));
    case CodecId::kNone:
    case CodecId::kTernGrad:
    case CodecId::kTopKExact:
    case CodecId::kCountSketch:
    case CodecId::kLsh:
    case CodecId::kPowerSgd:
      return std::nullopt;
  }
  return std::nullopt;
}

bool HasPlaces(Algorithm algorithm) {
  return algorithm == Algorithm::kBlockTopK || algorithm == Algorithm::kRandomK;
}
// Whether it keeps some elements only.
bool IsSparse(Algorithm algorithm) {
  return HasPlaces(algorithm) || algorithm == Algorithm::kThreshold ||
         algorithm == Algorithm::kTernary;
}
uint32_t PlacesOf(const CodecSpec& spec, size_t count) {
  if (spec.codec == CodecId::kRandomK)
    return static_cast<uint32_t>(RandomKPlaces(spec.level, count));
  const auto block = static_cast<size_t>(spec.level);
  return static_cast<uint32_t>((count + block - 1) / block);
}
bool HasOwnSize(Algorithm algorithm) {
  return IsSparse(algorithm) || algorithm == Algorithm::kNatural || algorithm == Algorithm::kSign ||
         algorithm == Algorithm::kOneBit || algorithm == Algorithm::kSignSgd;
}

class GpuEncoder final : public DeviceEncoder {
 public:
  GpuEncoder(Device* device, size_t chunks);
  ~GpuEncoder() override;
  GpuEncoder(const GpuEncoder&) = delete;
  GpuEncoder& operator=(const GpuEncoder&) = delete;

  bool Encodes(const CodecSpec& spec) const override;
  absl::Status Encode(absl::Span<const Task> tasks, std::vector<Encoded>* encoded) override;
  absl::Status WriteResidual(size_t chunk, absl::Span<const float> values) override;
  bool has_residual(size_t chunk) const override { return residuals_[chunk].values != nullptr; }
  absl::Status ReadResidual(size_t chunk, absl::Span<float> values) override;

 private:
  struct Residual {
    float* values = nullptr;
    size_t count = 0;
  };
  struct Batch;

  absl::Status TakeFloats(size_t count, float** floats);
  void GiveFloats(float* floats, size_t count);
  absl::Status MakeResidual(const Task& task);
  absl::Status Prepare(absl::Span<const Task> tasks, Batch* batch);
  absl::Status OwnThresholds(Batch* batch);
  absl::Status SampleWithoutRefused(Batch* batch);
  void Launch(Batch* batch);
  absl::Status FetchPayloads(Batch* batch, std::vector<Encoded>* encoded);

  Device* const device_;
  std::vector<Residual> residuals_;
  // Of as many floats as a chunk: what an encoding leaves goes there, and the residual that it was
  // made from comes back, unless the chunk is refused.
  std::multimap<size_t, float*> spare_;
  DeviceBuffer inputs_, results_, room_, payloads_;
  DeviceBuffer host_inputs_, host_results_, host_payloads_, host_copy_;
};

// What is encoded at once, and where it lies: tasks of one coding and type of gradient are one
// work, and those of them that are counted together one sample.
struct GpuEncoder::Batch {
  struct Sample {
    MagnitudeHistogram* magnitudes = nullptr;
    ElementType gradient = ElementType::kFloat32;
    std::vector<size_t> tasks;
    size_t chunks_at = 0, strides_at = 0, counts_at = 0;
    std::vector<uint32_t> strides;
  };
  struct Work {
    Coding coding;
    ElementType gradient = ElementType::kFloat32;
    std::vector<size_t> tasks;
    std::vector<Chunk> chunks;
    std::vector<Tile> tiles;
    uint32_t blocks = 0;
    size_t chunks_at = 0, tiles_at = 0, thresholds_at = 0;  // Of the inputs,
    size_t places_at = 0, exponents_at = 0;
    size_t largest_at = 0, sizes_at = 0, kept_at = 0;  // and the results.
  };
  struct Place {  // Of a task.
    size_t work = 0, index = 0;
    size_t payload_at = 0;
    float* left = nullptr;
  };

  absl::Span<const Task> tasks;
  std::vector<Work> works;
  std::vector<Sample> samples;
  std::vector<Place> places;
  std::vector<float> thresholds;  // By task.
  Offsets inputs, results, payloads;
  size_t refused_at = 0, samples_at = 0;

  Work& WorkOf(const Task& task) {
    const Coding coding = *CodingOf(*task.spec);
    for (Work& work : works) {
      if (work.coding == coding && work.gradient == task.gradient.type) return work;
    }
    Work& work = works.emplace_back();
    work.coding = coding;
    work.gradient = task.gradient.type;
    return work;
  }
  Sample& SampleOf(const Task& task) {
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
  const Chunk& ChunkOf(size_t task) const {
    return works[places[task].work].chunks[places[task].index];
  }
};

GpuEncoder::GpuEncoder(Device* device, size_t chunks)
    : device_(device),
      residuals_(chunks),
      inputs_(device, false),
      results_(device, false),
      room_(device, false),
      payloads_(device, false),
      host_inputs_(device, true),
      host_results_(device, true),
      host_payloads_(device, true),
      host_copy_(device, true) {}

GpuEncoder::~GpuEncoder() {
  for (const Residual& residual : residuals_) device_->Free(residual.values);
  for (const auto& [count, floats] : spare_) device_->Free(floats);
}

bool GpuEncoder::Encodes(const CodecSpec& spec) const {
  const CompensatorId compensator = spec.compensator.id;
  return CodingOf(spec).has_value() &&
         (compensator == CompensatorId::kErrorFeedback || compensator == CompensatorId::kNone);
}

absl::Status GpuEncoder::TakeFloats(size_t count, float** floats) {
  const auto spare = spare_.find(count);
  if (spare != spare_.end()) {
    *floats = spare->second;
    spare_.erase(spare);
    return absl::OkStatus();
  }
  *floats = static_cast<float*>(device_->Allocate(count * sizeof(float)));
  if (*floats != nullptr) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("no room on the GPU for the residual of ", count,
                   " elements: take smaller batches, or encode without feedback (/noef)"));
}

void GpuEncoder::GiveFloats(float* floats, size_t count) { spare_.emplace(count, floats); }

absl::Status GpuEncoder::MakeResidual(const Task& task) {
  Residual& residual = residuals_[task.chunk];
  if (residual.values != nullptr) return absl::OkStatus();
  absl::Status room = TakeFloats(task.count, &residual.values);
  if (!room.ok()) return room;
  residual.count = task.count;
  device_->Clear(residual.values, task.count * sizeof(float));
  return absl::OkStatus();
}

absl::Status GpuEncoder::WriteResidual(size_t chunk, absl::Span<const float> values) {
  Residual& residual = residuals_[chunk];
  if (residual.values != nullptr && residual.count != values.size()) {
    GiveFloats(std::exchange(residual.values, nullptr), residual.count);
  }
  if (values.empty()) return absl::OkStatus();
  if (residual.values == nullptr) {
    absl::Status room = TakeFloats(values.size(), &residual.values);
    if (!room.ok()) return room;
    residual.count = values.size();
  }
  const size_t bytes = values.size() * sizeof(float);
  absl::Status room = host_copy_.Reserve(bytes);
  if (!room.ok()) return room;
  std::memcpy(host_copy_.data(), values.data(), bytes);
  device_->CopyIn(residual.values, host_copy_.data(), bytes);
  return WaitFor(device_);
}

absl::Status GpuEncoder::ReadResidual(size_t chunk, absl::Span<float> values) {
  const Residual& residual = residuals_[chunk];
  Check(residual.values != nullptr && residual.count == values.size(),
        "a residual is read whole, where there is one");
  device_->CopyOut(values.data(), residual.values, values.size() * sizeof(float));
  return WaitFor(device_);
}

absl::Status GpuEncoder::Prepare(absl::Span<const Task> tasks, Batch* batch) {
  batch->tasks = tasks;
  batch->places.resize(tasks.size());
  batch->thresholds.resize(tasks.size());
  size_t room = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    Batch::Work& work = batch->WorkOf(task);
    Batch::Place& place = batch->places[i];
    place.work = static_cast<size_t>(&work - batch->works.data());
    place.index = work.tasks.size();
    place.payload_at = batch->payloads.Add<uint8_t>(task.codec->MaxPayloadSize(task.count, 0));
    work.tasks.push_back(i);
    Chunk& chunk = work.chunks.emplace_back();
    chunk.gradient = task.gradient.data;
    chunk.scale = task.gradient.scale;
    chunk.count = static_cast<uint32_t>(task.count);
    chunk.own_key = task.own_key;
    chunk.shared_key = task.shared_key;
    chunk.first_block = work.blocks;
    chunk.first_element = work.blocks * kCodeBlock;
    work.blocks += (BlocksOf(chunk.count) + kBlocksApart - 1) / kBlocksApart * kBlocksApart;
    if (task.spec->compensator.id == CompensatorId::kErrorFeedback) {
      absl::Status made = MakeResidual(task);
      if (made.ok()) made = TakeFloats(task.count, &place.left);
      if (!made.ok()) return made;
      chunk.residual = residuals_[task.chunk].values;
      chunk.left = place.left;
    }
    if (task.magnitudes != nullptr) {
      Batch::Sample& sample = batch->SampleOf(task);
      sample.tasks.push_back(i);
      sample.strides.push_back(static_cast<uint32_t>(task.magnitude_stride));
    }
  }
  absl::Status reserved = payloads_.Reserve(batch->payloads.size());
  if (!reserved.ok()) return reserved;

  batch->refused_at = batch->results.Add<uint32_t>(tasks.size());
  for (Batch::Work& work : batch->works) {
    work.tiles = MakeTiles(work.chunks);
    const size_t chunks = work.chunks.size();
    work.chunks_at = batch->inputs.Add<Chunk>(chunks);
    work.tiles_at = batch->inputs.Add<Tile>(work.tiles.size());
    work.thresholds_at = batch->inputs.Add<float>(chunks);
    work.largest_at = batch->results.Add<uint32_t>(chunks);
    work.sizes_at = batch->results.Add<uint32_t>(chunks);
    work.kept_at = batch->results.Add<uint32_t>(chunks);
    if (HasPlaces(work.coding.algorithm)) work.places_at = batch->inputs.Add<uint32_t>(chunks);
    if (work.coding.algorithm == Algorithm::kIntSum) {
      work.exponents_at = batch->inputs.Add<float>(work.blocks);
    }
    Offsets needed;
    for (int array = 0; array < 5; ++array) needed.Add<uint32_t>(work.blocks * size_t{kCodeBlock});
    for (int array = 0; array < 2; ++array) needed.Add<uint32_t>(work.blocks);
    if (HasOwnSize(work.coding.algorithm)) room = std::max(room, needed.size());
  }
  batch->samples_at = batch->results.size();
  for (Batch::Sample& sample : batch->samples) {
    sample.chunks_at = batch->inputs.Add<Chunk>(sample.tasks.size());
    sample.strides_at = batch->inputs.Add<uint32_t>(sample.tasks.size());
    sample.counts_at = batch->results.Add<uint32_t>(kBins);
  }
  for (DeviceBuffer* const buffer : {&inputs_, &host_inputs_}) {
    reserved.Update(buffer->Reserve(batch->inputs.size()));
  }
  for (DeviceBuffer* const buffer : {&results_, &host_results_}) {
    reserved.Update(buffer->Reserve(batch->results.size()));
  }
  reserved.Update(room_.Reserve(room));
  if (!reserved.ok()) return reserved;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Batch::Place& place = batch->places[i];
    Chunk& chunk = batch->works[place.work].chunks[place.index];
    chunk.payload = At<uint8_t>(payloads_, place.payload_at);
    chunk.refused = At<uint32_t>(results_, batch->refused_at) + i;
  }
  device_->Clear(results_.data(), batch->results.size());
  // Tasks of a tensor share an event, and most often come one after the other.
  void* last = nullptr;
  for (const Task& task : tasks) {
    if (task.gradient.ready != last) device_->After(task.gradient.ready);
    last = task.gradient.ready;
  }
  return absl::OkStatus();
}

// Of chunks that have no threshold yet, each by what is in it: in a job's first step.
absl::Status GpuEncoder::OwnThresholds(Batch* batch) {
  std::vector<size_t> without;
  for (size_t i = 0; i < batch->tasks.size(); ++i) {
    const Task& task = batch->tasks[i];
    const bool selects =
        batch->works[batch->places[i].work].coding.algorithm == Algorithm::kThreshold;
    if (!selects) continue;
    const bool has_own = task.codec->density() == 0;
    const float threshold = has_own ? static_cast<float>(task.spec->level) : task.threshold;
    batch->thresholds[i] = UsableThreshold(threshold);
    if (!has_own && !(threshold > 0)) without.push_back(i);
  }
  if (without.empty()) return absl::OkStatus();
  // Room of its own, for the only time.
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

void GpuEncoder::Launch(Batch* batch) {
  for (const Batch::Work& work : batch->works) {
    std::copy(work.chunks.begin(), work.chunks.end(), At<Chunk>(host_inputs_, work.chunks_at));
    std::copy(work.tiles.begin(), work.tiles.end(), At<Tile>(host_inputs_, work.tiles_at));
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
    work.largest = At<uint32_t>(results_, planned.largest_at);
    work.sizes = At<uint32_t>(results_, planned.sizes_at);
    work.kept = At<uint32_t>(results_, planned.kept_at);
    Offsets room;
    const size_t elements = planned.blocks * size_t{kCodeBlock};
    work.room.positions = At<uint32_t>(room_, room.Add<uint32_t>(elements));
    work.room.values = At<float>(room_, room.Add<float>(elements));
    work.room.packed_positions = At<uint32_t>(room_, room.Add<uint32_t>(elements));
    work.room.packed_values = At<float>(room_, room.Add<float>(elements));
    work.room.gaps = At<uint32_t>(room_, room.Add<uint32_t>(elements));
    work.room.kept = At<uint32_t>(room_, room.Add<uint32_t>(planned.blocks));
    work.room.scales = At<uint32_t>(room_, room.Add<uint32_t>(planned.blocks));
    device_->Run(work);
  }
  device_->CopyOut(host_results_.data(), results_.data(), batch->results.size());
}

// Counts again what refused chunks were counted with: the residuals are still those of before.
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
    const size_t most = batch->tasks[i].codec->MaxPayloadSize(batch->tasks[i].count, 0);
    const size_t size = HasOwnSize(work.coding.algorithm)
                            ? At<uint32_t>(host_results_, work.sizes_at)[place.index]
                            : most;
    Check(size <= most, "a payload is within its codec's bound");
    if (IsSparse(work.coding.algorithm)) {
      one.kept = At<uint32_t>(host_results_, work.kept_at)[place.index];
    }
    std::byte* const payload = host_payloads_.data() + place.payload_at;
    device_->CopyOut(payload, payloads_.data() + place.payload_at, size);
    one.payload = {payload, size};
  }
  return WaitFor(device_);
}

absl::Status GpuEncoder::Encode(absl::Span<const Task> tasks, std::vector<Encoded>* encoded) {
  Batch batch;
  absl::Status status = Prepare(tasks, &batch);
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
    float* unused = left;
    if (status.ok() && !(*encoded)[i].refused) {
      unused = std::exchange(residuals_[tasks[i].chunk].values, left);
    }
    GiveFloats(unused, tasks[i].count);
  }
  if (!status.ok()) return status;
  for (const Batch::Sample& sample : batch.samples) {
    sample.magnitudes->AddCounts({At<uint32_t>(host_results_, sample.counts_at), kBins});
  }
  return absl::OkStatus();
}

class GpuEncodingDevice final : public EncodingDevice {
 public:
  explicit GpuEncodingDevice(std::unique_ptr<Device> device)
      : device_(std::move(device)), adder_(device_.get()) {}

  std::unique_ptr<DeviceEncoder> MakeEncoder(size_t chunks) override {
    return std::make_unique<GpuEncoder>(device_.get(), chunks);
  }
  absl::Status Read(const DeviceGradient& gradient, size_t bytes, void* to) override {
    device_->After(gradient.ready);
    device_->CopyOut(to, gradient.data, bytes);
    return WaitFor(device_.get());
  }
  absl::Status Add(absl::Span<const DeviceSum> sums, void* ready) override {
    return adder_.Add(sums, ready);
  }

 private:
  const std::unique_ptr<Device> device_;
  GpuAdder adder_;
};

}  // namespace

std::unique_ptr<EncodingDevice> MakeEncodingDevice(std::unique_ptr<Device> device) {
  return std::make_unique<GpuEncodingDevice>(std::move(device));
}

}  // namespace sluice::gpu
