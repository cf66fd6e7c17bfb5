// Speed of every codec of the table beside a plain read-modify-write stream over as much memory, in
// one run. bench/README.md says how to read it.

#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "benchmark/benchmark.h"
#include "compress/codec_table.h"
#include "compress/compensator.h"
#include "compress/frame.h"
#include "compress/vectorized.h"

namespace sluice {
namespace {

constexpr size_t kChunk = 65536;  // Elements; the default of a job.
constexpr size_t kSlack = 4096;   // Elements by which gradients move from step to step.
constexpr float kCarry = 0.75f;

// Sizes in chunks: one and its residual stay in a second-level cache, 512 of them in none.
constexpr int64_t kCached = 1;
constexpr int64_t kStreamed = 512;

std::vector<float> Gradients(size_t count) {
  CounterRandom random(1);
  std::vector<float> values(count);
  for (float& value : values) {
    // The product of three is heavy-tailed, as gradients are.
    const double x = (random.Uniform() - 0.5) * (random.Uniform() + 0.05) * random.Uniform();
    value = static_cast<float>(x * 1e-2);
  }
  return values;
}

// Rates are of fp32 input, not of all traffic.
void ReportRates(benchmark::State& state, size_t elements, size_t frame_bytes) {
  const auto input = static_cast<double>(elements * sizeof(float));
  state.counters["GB/s"] =
      benchmark::Counter(input * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  if (frame_bytes > 0) state.counters["ratio"] = input / static_cast<double>(frame_bytes);
}

SLUICE_VECTORIZED void ReadModifyWrite(const float* __restrict gradient, float* __restrict acc,
                                       size_t count) {
  for (size_t i = 0; i < count; ++i) acc[i] = acc[i] * kCarry + gradient[i];
}

void BM_Stream(benchmark::State& state) {
  const size_t count = static_cast<size_t>(state.range(0)) * kChunk;
  const std::vector<float> gradient = Gradients(count);
  std::vector<float> acc(count);
  for (auto _ : state) {
    ReadModifyWrite(gradient.data(), acc.data(), count);
    benchmark::ClobberMemory();
  }
  ReportRates(state, count, 0);
}

// Chunks with their residuals, and the threshold that a sender would have by its second step.
struct Sender {
  Sender(const CodecEntry& entry, size_t chunks) : gradient(Gradients(chunks * kChunk + kSlack)) {
    codec = MakeCodec(*ParseCodecSpec(entry.example));
    MagnitudeHistogram magnitudes;
    for (size_t i = 0; i < chunks; ++i) {
      residuals.push_back(MakeErrorFeedback(kChunk));
      magnitudes.Add(Chunk(i));
    }
    if (codec->density() > 0) threshold = magnitudes.ThresholdFor(codec->density());
  }

  absl::Span<const float> Chunk(size_t i) const {
    return absl::MakeConstSpan(gradient).subspan(i * kChunk + offset, kChunk);
  }
  // One step; returns the bytes of all frames.
  size_t EncodeAll(std::vector<std::byte>* frame) {
    MagnitudeHistogram magnitudes;
    size_t bytes = 0;
    // Each step has other gradients, without touching more memory.
    offset = (offset + 61) % kSlack;
    for (size_t i = 0; i < residuals.size(); ++i) {
      frame->clear();
      const absl::Status status = residuals[i]->Encode(*codec,
                                                       {.gradient = Chunk(i),
                                                        .threshold = threshold,
                                                        .magnitudes = &magnitudes,
                                                        .scratch = &scratch},
                                                       frame);
      Check(status.ok(), status.message());
      bytes += frame->size();
    }
    // The residuals grow until what leaves is what comes in.
    if (codec->density() > 0) threshold = magnitudes.ThresholdFor(codec->density());
    return bytes;
  }

  std::unique_ptr<Codec> codec;
  std::vector<float> gradient;
  std::vector<std::unique_ptr<Compensator>> residuals;
  EncodeScratch scratch;
  float threshold = 0;
  size_t offset = 0;
};

void BM_Encode(benchmark::State& state, const CodecEntry* entry) {
  Sender sender(*entry, static_cast<size_t>(state.range(0)));
  std::vector<std::byte> frame;
  for (int step = 0; step < 20; ++step) sender.EncodeAll(&frame);
  size_t bytes = 0;
  for (auto _ : state) bytes += sender.EncodeAll(&frame);
  bytes /= static_cast<size_t>(state.iterations());
  ReportRates(state, sender.residuals.size() * kChunk, bytes);
}

void BM_DecodeAdd(benchmark::State& state, const CodecEntry* entry) {
  const auto chunks = static_cast<size_t>(state.range(0));
  Sender sender(*entry, chunks);
  std::vector<std::vector<std::byte>> frames(chunks);
  size_t bytes = 0;
  for (size_t i = 0; i < chunks; ++i) {
    const absl::Status status = sender.residuals[i]->Encode(
        *sender.codec, {.gradient = sender.Chunk(i), .threshold = sender.threshold}, &frames[i]);
    Check(status.ok(), status.message());
    bytes += frames[i].size();
  }
  std::vector<float> sum(chunks * kChunk);
  for (auto _ : state) {
    for (size_t i = 0; i < chunks; ++i) {
      const absl::Status status =
          DecodeAddFrame(frames[i], absl::MakeSpan(sum).subspan(i * kChunk, kChunk));
      Check(status.ok(), status.message());
    }
  }
  ReportRates(state, sum.size(), bytes);
}

void RegisterAll() {
  for (const int64_t chunks : {kCached, kStreamed}) {
    benchmark::RegisterBenchmark("stream", BM_Stream)->Arg(chunks);
    for (const CodecEntry& entry : Codecs()) {
      const std::string name(entry.example);
      benchmark::RegisterBenchmark(("encode/" + name).c_str(), BM_Encode, &entry)->Arg(chunks);
      benchmark::RegisterBenchmark(("decode_add/" + name).c_str(), BM_DecodeAdd, &entry)
          ->Arg(chunks);
    }
    benchmark::RegisterBenchmark("stream", BM_Stream)->Arg(chunks);
  }
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  sluice::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
