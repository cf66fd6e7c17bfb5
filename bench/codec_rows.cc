// SPDX-License-Identifier: Apache-2.0
#include "bench/codec_rows.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "bench/sender.h"
#include "bench/streams.h"
#include "compress/aggregator.h"
#include "compress/codec_table.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/sparse_values.h"
#include "compress/compressor.h"
#include "compress/frame.h"
#include "compress/simd/select.h"
#include "compress/simd/sign.h"
#include "compress/simd/ternary.h"

namespace sluice::bench {
namespace {

constexpr size_t kSliceElements = kChunksInSlice * kChunk;

std::function<void(size_t)> StreamOf(Side* side) {
  return [side](size_t slice) {
    const size_t at = slice * kSliceElements;
    ReadModifyWrite(side->gradient.span().data() + at, side->residual.span().data() + at,
                    kSliceElements);
  };
}

template <typename Fn>
std::function<void(size_t)> ForChunks(Fn fn) {
  return [fn](size_t slice) {
    for (size_t i = 0; i < kChunksInSlice; ++i) fn(slice * kChunksInSlice + i);
  };
}

Work AgainstStream(Memory* memory, std::function<void(size_t)> measured,
                   std::function<void()> prepare) {
  return {.pair = {.measured = std::move(measured),
                   .against = StreamOf(&memory->against),
                   .slices = kSlices,
                   .prepare = std::move(prepare)}};
}

// Measures a whole frame, including positions, checksum and residual.
Row FrameRow(const std::string& spec, double floor) {
  return {.group = "frame",
          .name = spec,
          .against = "stream",
          .floor = floor,
          .make = [spec](Memory* memory) {
            auto sender = std::make_shared<Sender>(spec, &memory->measured);
            return AgainstStream(
                memory, [sender](size_t slice) { sender->EncodeSlice(slice); },
                [sender] { sender->NextPass(); });
          }};
}

// Measures the payload without feedback, with separate memory for each chunk. Like memcpy, a cast
// reads and writes memory once, but it writes less.
Row CastRow(const std::string& spec) {
  return {.group = "cast",
          .name = spec,
          .against = "memcpy",
          .floor = 0.8,
          .make = [spec](Memory* memory) {
            auto sender = std::make_shared<Sender>(spec, &memory->measured, false);
            Side* const side = &memory->against;
            return Work{.pair = {.measured = ForChunks(
                                     [sender](size_t chunk) { sender->EncodePayloadApart(chunk); }),
                                 .against =
                                     [side](size_t slice) {
                                       const size_t at = slice * kSliceElements;
                                       std::memcpy(side->residual.span().data() + at,
                                                   side->gradient.span().data() + at,
                                                   kSliceElements * sizeof(float));
                                     },
                                 .slices = kSlices,
                                 .prepare = [sender] { sender->NextPass(); }}};
          }};
}

// Selects, quantizes and updates the residual. Codes are written to buffers that all chunks share.
using Kernel = std::function<void(Sender* sender, size_t chunk)>;

Row KernelRow(const std::string& spec, double floor, std::function<Kernel()> make_kernel) {
  return {.group = "kernel",
          .name = spec,
          .against = "stream",
          .floor = floor,
          .make = [spec, make_kernel](Memory* memory) {
            auto sender = std::make_shared<Sender>(spec, &memory->measured);
            const Kernel kernel = make_kernel();
            return AgainstStream(
                memory, ForChunks([sender, kernel](size_t chunk) { kernel(sender.get(), chunk); }),
                [sender] { sender->NextPass(); });
          }};
}

// Measures the whole payload, for codecs without entropy coding.
Row PayloadKernelRow(const std::string& spec, double floor) {
  return KernelRow(spec, floor, [] {
    return [](Sender* sender, size_t chunk) { sender->EncodePayload(chunk); };
  });
}

Row SelectRow(const std::string& spec, compress::ValueFormat format, double floor) {
  return KernelRow(spec, floor, [format] {
    struct Buffers {
      std::vector<uint32_t> positions = std::vector<uint32_t>(kChunk + compress::kSelectSlack);
      std::vector<float> values = std::vector<float>(kChunk + compress::kSelectSlack);
      std::vector<std::byte> codes;
    };
    return [buffers = std::make_shared<Buffers>(), format](Sender* sender, size_t chunk) {
      const compress::EncodeInput input = sender->Input(chunk);
      const size_t kept = compress::SelectAbove(input.gradient.data(), input.residual.data(),
                                                kChunk, input.threshold, 0,
                                                buffers->positions.data(), buffers->values.data());
      const absl::Span<float> values = absl::MakeSpan(buffers->values).first(kept);
      buffers->codes.clear();
      compress::AppendValues(format, compress::ChooseLevels(format, values, input.threshold),
                             values, &buffers->codes);
      for (size_t i = 0; i < kept; ++i) input.residual[buffers->positions[i]] = values[i];
    };
  });
}

Row TernaryRow(const std::string& spec, double floor) {
  return KernelRow(spec, floor, [spec] {
    const float share = static_cast<float>(compress::ParseCodecSpec(spec)->level);
    auto entries = std::make_shared<std::vector<uint32_t>>(kChunk + compress::kTernarySlack);
    auto scales = std::make_shared<std::vector<uint32_t>>(kChunk / compress::kTernaryBlock);
    return [entries, scales, share](Sender* sender, size_t chunk) {
      const compress::EncodeInput input = sender->Input(chunk);
      compress::EncodeTernary(input.gradient.data(), input.residual.data(), share, 0,
                              entries->data(), scales->data(), scales->size());
    };
  });
}

Row SignRow(const std::string& spec, compress::SignScale scale, double floor) {
  return KernelRow(spec, floor, [scale] {
    auto blocks = std::make_shared<std::vector<compress::SignBlock>>(kChunk / compress::kSignBlock);
    const auto zeros = scale == compress::SignScale::kTwoMeans ? compress::SignZeros::kPositive
                                                               : compress::SignZeros::kAlternate;
    return [blocks, scale, zeros](Sender* sender, size_t chunk) {
      const compress::EncodeInput input = sender->Input(chunk);
      compress::EncodeSigns(input.gradient.data(), input.residual.data(), scale, zeros,
                            blocks->data(), blocks->size());
    };
  });
}

// Measures one sender against another.
Row SendersRow(const std::string& name, const std::string& spec, const std::string& other,
               bool searches, double most) {
  return {
      .group = "search",
      .name = name,
      .against = other,
      .figure = Figure::kTimes,
      .floor = most,
      .make = [spec, other, searches](Memory* memory) {
        auto sender = std::make_shared<Sender>(spec, &memory->measured);
        auto against = std::make_shared<Sender>(other, &memory->against);
        if (searches) sender->SearchThresholds();
        return Work{.pair = {.measured = [sender](size_t slice) { sender->EncodeSlice(slice); },
                             .against = [against](size_t slice) { against->EncodeSlice(slice); },
                             .slices = kSlices,
                             .prepare =
                                 [sender, against] {
                                   sender->NextPass();
                                   against->NextPass();
                                 }}};
      }};
}

// Measures all the work of a job's sender: the check for finite values, the count of magnitudes and
// the encoding.
Row CompressorRow(const std::string& spec) {
  return {.group = "sender", .name = spec, .against = "stream", .make = [spec](Memory* memory) {
            struct State {
              std::unique_ptr<compress::Compressor> compressor;
              std::vector<std::vector<std::byte>> frames =
                  std::vector<std::vector<std::byte>>(kChunks);
              uint64_t step = 0;
            };
            auto state = std::make_shared<State>();
            std::vector<compress::ChunkConfig> chunks(kChunks);
            for (size_t i = 0; i < kChunks; ++i) {
              chunks[i].id = static_cast<uint32_t>(i);
              chunks[i].count = kChunk;
              chunks[i].spec = *compress::ParseCodecSpec(spec);
            }
            state->compressor =
                std::make_unique<compress::Compressor>(chunks, compress::Compressor::Options{});
            Side* const side = &memory->measured;
            const auto encode = ForChunks([state, side](size_t chunk) {
              state->frames[chunk].clear();
              const absl::Status status = state->compressor->Encode(
                  chunk, state->step, side->gradient.chunk(chunk), &state->frames[chunk]);
              Check(status.ok(), status.message());
            });
            const auto next = [state] { state->compressor->EndStep(state->step++); };
            for (int step = 0; step < 10; ++step) {
              next();
              for (size_t slice = 0; slice < kSlices; ++slice) encode(slice);
            }
            return AgainstStream(memory, encode, next);
          }};
}

std::vector<compress::SenderFrame> FramesAt(const SenderFrames& frames, size_t chunk) {
  std::vector<compress::SenderFrame> at;
  for (uint32_t sender = 0; sender < kSumInputs; ++sender) {
    at.push_back({.sender = sender, .frame = frames.of_sender[sender][chunk]});
  }
  return at;
}

// The frames of kSumInputs senders. Each chunk has an aggregator and a list of its frames.
struct Receiver {
  Receiver(const std::string& spec, Side* side) : frames(FramesOf(spec, side)) {
    for (size_t chunk = 0; chunk < kChunks; ++chunk) {
      compress::ChunkConfig config;
      config.id = static_cast<uint32_t>(chunk);
      config.count = kChunk;
      config.spec = *compress::ParseCodecSpec(spec);
      aggregators.push_back(compress::MakeAggregator(config, kSumInputs));
      lists.push_back(FramesAt(frames, chunk));
    }
  }
  SenderFrames frames;
  std::vector<std::unique_ptr<compress::Aggregator>> aggregators;
  std::vector<std::vector<compress::SenderFrame>> lists;
};

enum class ReceiverWork { kAdd, kAddInCache, kAddAndClose, kCheckAndAdd };

std::function<void(size_t)> WorkOf(std::shared_ptr<Receiver> receiver, Side* side,
                                   ReceiverWork what) {
  return ForChunks([receiver = std::move(receiver), side, what](size_t chunk) {
    compress::Aggregator& aggregator = *receiver->aggregators[chunk];
    // All chunks share one sum, which stays in a cache.
    const absl::Span<float> sum =
        side->residual.chunk(what == ReceiverWork::kAddInCache ? 0 : chunk);
    if (what == ReceiverWork::kCheckAndAdd) {
      for (const compress::SenderFrame& frame : receiver->lists[chunk]) {
        const absl::Status status = aggregator.Validate(frame.sender, frame.frame);
        Check(status.ok(), status.message());
      }
    }
    aggregator.Add(receiver->lists[chunk], sum);
    if (what == ReceiverWork::kAddAndClose) aggregator.Close(kSumInputs, sum);
  });
}

// Starts a new step: closes the previous step and clears the sums, so that sums neither grow from
// pass to pass nor become subnormal.
std::function<void()> Clearing(std::shared_ptr<Receiver> receiver, Side* side) {
  return [receiver = std::move(receiver), side] {
    for (size_t chunk = 0; chunk < kChunks; ++chunk) {
      receiver->aggregators[chunk]->Close(1, side->residual.chunk(chunk));
    }
    const absl::Span<float> sums = side->residual.span();
    std::fill(sums.begin(), sums.end(), 0.0f);
  };
}

Row KeptRow(const std::string& spec, ReceiverWork what, double most) {
  return {.group = "shard",
          .name = absl::StrCat(what == ReceiverWork::kCheckAndAdd ? "check + " : "", "add 8 ", spec,
                               what == ReceiverWork::kAddInCache ? ", in cache" : ""),
          .against = "stream",
          .figure = Figure::kNanoseconds,
          .floor = most,
          .make = [spec, what](Memory* memory) {
            auto receiver = std::make_shared<Receiver>(spec, &memory->measured);
            Side* const side = &memory->measured;
            Work work =
                AgainstStream(memory, WorkOf(receiver, side, what), Clearing(receiver, side));
            work.units = receiver->frames.kept_per_chunk * kChunksInSlice;
            return work;
          }};
}

Row SumRow(const std::string& spec, double most) {
  return {
      .group = "shard",
      .name = absl::StrCat("sum 8 ", spec),
      .against = "10-byte stream",
      .figure = Figure::kTimes,
      .floor = most,
      .make = [spec](Memory* memory) {
        struct Bytes {
          std::vector<int8_t> inputs[kSumInputs];
          std::vector<int16_t> sums = std::vector<int16_t>(kChunks * kChunk);
        };
        auto bytes = std::make_shared<Bytes>();
        for (std::vector<int8_t>& input : bytes->inputs) input.resize(kChunks * kChunk);
        auto receiver = std::make_shared<Receiver>(spec, &memory->measured);
        Side* const side = &memory->measured;
        return Work{.pair = {.measured = WorkOf(receiver, side, ReceiverWork::kAdd),
                             .against =
                                 [bytes](size_t slice) {
                                   const int8_t* inputs[kSumInputs];
                                   for (size_t i = 0; i < kSumInputs; ++i) {
                                     inputs[i] = bytes->inputs[i].data() + slice * kSliceElements;
                                   }
                                   SumOfBytes(inputs, bytes->sums.data() + slice * kSliceElements,
                                              kSliceElements);
                                 },
                             .slices = kSlices,
                             .prepare = Clearing(receiver, side)}};
      }};
}

// Measures a whole step, including the mean, of `spec` against `other`.
Row MeanRow(const std::string& spec, const std::string& other) {
  return {.group = "shard",
          .name = absl::StrCat("mean of 8 ", spec),
          .against = absl::StrCat("of 8 ", other),
          .figure = Figure::kTimes,
          .make = [spec, other](Memory* memory) {
            auto receiver = std::make_shared<Receiver>(spec, &memory->measured);
            auto against = std::make_shared<Receiver>(other, &memory->against);
            Side* const sums = &memory->measured;
            Side* const other_sums = &memory->against;
            return Work{.pair = {.measured = WorkOf(receiver, sums, ReceiverWork::kAddAndClose),
                                 .against = WorkOf(against, other_sums, ReceiverWork::kAddAndClose),
                                 .slices = kSlices,
                                 .prepare = [clear = Clearing(receiver, sums),
                                             other = Clearing(against, other_sums)] {
                                   clear();
                                   other();
                                 }}};
          }};
}

Row CheckRow() {
  return {.group = "sender",
          .name = "check that acc is finite",
          .against = "stream",
          .make = [](Memory* memory) {
            Side* const side = &memory->measured;
            return AgainstStream(memory, ForChunks([side](size_t chunk) {
                                   const absl::Status status = compress::CheckAccumulator(
                                       side->gradient.chunk(chunk), side->residual.chunk(chunk));
                                   Check(status.ok(), status.message());
                                 }),
                                 {});
          }};
}

void AddKernelRows(std::vector<Row>* rows) {
  rows->push_back(SelectRow("topk:0.1%", compress::ValueFormat::kFp16, 0.85));
  rows->push_back(SelectRow("topk:0.1%+int4", compress::ValueFormat::kInt4, 0.85));
  rows->push_back(SelectRow("topk:1%", compress::ValueFormat::kFp16, 0.85));
  rows->push_back(SelectRow("topk:1%+int4", compress::ValueFormat::kInt4, 0.85));
  rows->push_back(SelectRow("topk:10%", compress::ValueFormat::kFp16, 0));
  rows->push_back(SelectRow("topk:10%+int4", compress::ValueFormat::kInt4, 0));
  rows->push_back(TernaryRow("ternary:0.5", 0.85));
  rows->push_back(TernaryRow("ternary:0.7", 0.85));
  rows->push_back(SignRow("sign", compress::SignScale::kMean, 0.85));
  rows->push_back(SignRow("onebit", compress::SignScale::kTwoMeans, 0));
  rows->push_back(PayloadKernelRow("int8", 0.75));
  rows->push_back(PayloadKernelRow("int4", 0.75));
  rows->push_back(PayloadKernelRow("int2", 0));
}

void AddFrameRows(std::vector<Row>* rows) {
  const struct {
    const char* spec;
    double floor;
  } usual[] = {{"topk:0.1%", 0.85},    {"topk:0.1%+int4", 0.85}, {"topk:1%", 0.75},
               {"topk:1%+int4", 0.75}, {"topk:10%", 0.45},       {"topk:10%+int4", 0.45},
               {"ternary:0.5", 0.55},  {"ternary:0.7", 0.65},    {"topk:1%+int8", 0},
               {"topk:1%+sign", 0}};
  const size_t first = rows->size();
  for (const auto& row : usual) rows->push_back(FrameRow(row.spec, row.floor));
  for (const compress::CodecEntry& entry : compress::Codecs()) {
    const std::string spec(entry.example);
    const bool there = std::any_of(rows->begin() + static_cast<ptrdiff_t>(first), rows->end(),
                                   [&](const Row& row) { return row.name == spec; });
    if (!there) rows->push_back(FrameRow(spec, 0));
  }
}

}  // namespace

std::vector<Row> AllRows() {
  std::vector<Row> rows;
  for (const char* spec : {"none", "fp16", "bf16", "fp8"}) rows.push_back(CastRow(spec));
  AddKernelRows(&rows);
  AddFrameRows(&rows);
  for (const char* spec : {"topk:0.1%+int4", "topk:1%+int4", "topk:10%+int4"}) {
    rows.push_back(SendersRow(absl::StrCat(spec, " + search"), spec, spec, true, 1.15));
  }
  rows.push_back(
      SendersRow("topk_exact:1%+int4", "topk_exact:1%+int4", "topk:1%+int4", false, 2.5));
  rows.push_back(CheckRow());
  for (const char* spec : {"topk:1%+int4", "ternary:0.5", "int8", "fp16"}) {
    rows.push_back(CompressorRow(spec));
  }
  for (const char* spec : {"topk:0.1%+int4", "topk:1%+int4", "topk:10%+int4", "ternary:0.5"}) {
    rows.push_back(KeptRow(spec, ReceiverWork::kAddInCache, 3));
    rows.push_back(KeptRow(spec, ReceiverWork::kAdd, 3));
    rows.push_back(KeptRow(spec, ReceiverWork::kCheckAndAdd, 0));
  }
  for (const char* spec : {"topk:1%,index=bytes+int4", "topk:10%,index=bytes+int4"}) {
    rows.push_back(KeptRow(spec, ReceiverWork::kAddInCache, 1.5));
  }
  rows.push_back(SumRow("int8", 1.3));
  rows.push_back(SumRow("int4", 0));
  rows.push_back(SumRow("intsum:8", 1.3));
  rows.push_back(SumRow("intsum:4", 1.3));
  rows.push_back(MeanRow("intsum:8", "int8"));
  rows.push_back(MeanRow("intsum:4", "int8"));
  return rows;
}

std::vector<Group> Groups() {
  return {{"cast", "a payload without feedback, against memcpy of the gradient"},
          {"kernel", "select, quantize and residual, threshold given, codes left in cache"},
          {"frame", "a whole frame: positions coded, checksum, residual, threshold given"},
          {"search", "frames with a searched threshold, against frames with a given one"},
          {"sender", "all work of a job's sender: check, frame and the next threshold"},
          {"shard", "sum of frames of 8 senders; ns are per kept element"}};
}

}  // namespace sluice::bench
