// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/codec_report.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "bench/measure/gradients.h"
#include "bench/measure/model_tables.h"
#include "bench/measure/table_file.h"
#include "compress/aggregator.h"
#include "compress/codec_table.h"
#include "compress/compressor.h"
#include "compress/frame.h"
#include "nlohmann/json.hpp"
#include "protocol/compression_spec.h"
#include "protocol/layout.h"

namespace sluice::bench {
namespace {

constexpr float kCarry = 0.75f;
// Residuals are steady if, for kSteadySteps steps, their energy grows per step by less than this
// share of the accumulator's energy. Sparse codecs start with a random walk, which becomes steady
// after about 1 / share steps.
constexpr double kSteadyGrowth = 0.02;
constexpr int kSteadySteps = 3;
constexpr double kSparse = 0.5;  // Codecs that send a smaller share report a size per kept element.

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double Quotient(double a, double b) { return b > 0 ? a / b : 0; }

// Measures the minimum memory traffic of any encoder with feedback.
double SecondsOfStream(const std::vector<float>& gradient, std::vector<float>* acc) {
  const double begin = Now();
  const float* const g = gradient.data();
  float* const a = acc->data();
  for (size_t i = 0; i < gradient.size(); ++i) a[i] = a[i] * kCarry + g[i];
  return Now() - begin;
}

struct StepMeasure {
  double bytes = 0;
  double spec_bytes = 0;  // Bytes of tensors that the spec applies to.
  double kept = 0;        // Elements of those tensors that do not decode to zero.
  double encode_seconds = 0;
  double add_seconds = 0;
  double lost = 0;    // Sum of the squared errors of the decoded values.
  double energy = 0;  // Sum of the squared encoded values.
};

// One worker and its shards, for one codec.
class Exchanger {
 public:
  Exchanger(const protocol::TensorTable& table, const compress::CodecSpec& spec, uint64_t seed)
      : spec_(spec),
        layout_(MakeLayout(table, spec)),
        configs_(MakeConfigs(table, layout_, spec)),
        compressor_(configs_, {.seed = seed, .sender = 0}) {
    for (const compress::ChunkConfig& config : configs_)
      aggregators_.push_back(compress::MakeAggregator(config, 1));
    offsets_.push_back(0);
    for (const protocol::TensorInfo& tensor : table)
      offsets_.push_back(offsets_.back() + tensor.elements());
    wanted_.resize(offsets_.back());
    frames_.resize(configs_.size());
  }

  double spec_elements() const {
    double elements = 0;
    for (const compress::ChunkConfig& config : configs_) {
      if (config.spec == spec_) elements += static_cast<double>(config.count);
    }
    return elements;
  }
  double ResidualEnergy() const { return compressor_.ResidualEnergy(); }

  // All chunks pass through one stage before the next stage begins. So a chunk has left the caches
  // when its turn comes, as in a job.
  StepMeasure Step(uint64_t step, absl::Span<const float> gradients) {
    StepMeasure measure;
    for (size_t id = 0; id < configs_.size(); ++id) NoteWanted(id, OfChunk(id, gradients));
    for (size_t id = 0; id < configs_.size(); ++id) {
      Encode(id, step, OfChunk(id, gradients), &measure);
    }
    for (size_t id = 0; id < configs_.size(); ++id) Add(id, &measure);
    const double begin = Now();
    compressor_.EndStep(step);
    measure.encode_seconds += Now() - begin;
    return measure;
  }

 private:
  static protocol::Layout MakeLayout(const protocol::TensorTable& table,
                                     const compress::CodecSpec& spec) {
    const std::vector<bool> whole_rows(table.size(), spec.codec == compress::CodecId::kPowerSgd);
    absl::StatusOr<protocol::Layout> layout = protocol::BuildLayout(table, 1, {}, whole_rows);
    Check(layout.ok(), layout.status().ToString());
    return *std::move(layout);
  }
  static std::vector<compress::ChunkConfig> MakeConfigs(const protocol::TensorTable& table,
                                                        const protocol::Layout& layout,
                                                        const compress::CodecSpec& spec) {
    protocol::CompressionSpec compression;
    compression.uplink = spec;
    std::vector<compress::ChunkConfig> configs =
        protocol::ChunkConfigs(compression, table, layout, protocol::Direction::kUplink);
    for (size_t id = 0; id < configs.size(); ++id) configs[id].rows = layout.chunks[id].rows;
    return configs;
  }

  template <typename Values>
  Values OfChunk(size_t id, Values all) const {
    const protocol::Chunk& chunk = layout_.chunks[id];
    return all.subspan(offsets_[chunk.tensor] + chunk.offset, chunk.count);
  }

  // Stores what the chunk's frame should decode to.
  void NoteWanted(size_t id, absl::Span<const float> gradient) {
    const absl::Span<float> wanted = OfChunk(id, absl::MakeSpan(wanted_));
    std::copy(gradient.begin(), gradient.end(), wanted.begin());
    const absl::Span<const float> owed = compressor_.residual(id);
    for (size_t i = 0; i < owed.size(); ++i) wanted[i] += owed[i];
  }

  void Encode(size_t id, uint64_t step, absl::Span<const float> gradient, StepMeasure* measure) {
    std::vector<std::byte>& frame = frames_[id];
    frame.clear();
    const double begin = Now();
    const absl::Status encoded = compressor_.Encode(id, step, gradient, &frame);
    measure->encode_seconds += Now() - begin;
    Check(encoded.ok(), encoded.ToString());
    measure->bytes += static_cast<double>(frame.size());
    if (configs_[id].spec == spec_) measure->spec_bytes += static_cast<double>(frame.size());
  }

  void Add(size_t id, StepMeasure* measure) {
    sum_.assign(configs_[id].count, 0.0f);
    const compress::SenderFrame received = {0, frames_[id]};
    const double begin = Now();
    const absl::Status valid = aggregators_[id]->Validate(0, frames_[id]);
    Check(valid.ok(), valid.ToString());
    aggregators_[id]->Add({&received, 1}, absl::MakeSpan(sum_));
    aggregators_[id]->Close(1, absl::MakeSpan(sum_));
    measure->add_seconds += Now() - begin;
    const bool of_spec = configs_[id].spec == spec_;
    const absl::Span<const float> wanted = OfChunk(id, absl::MakeConstSpan(wanted_));
    for (size_t i = 0; i < sum_.size(); ++i) {
      if (of_spec && sum_[i] != 0) ++measure->kept;
      const double lost = double{wanted[i]} - double{sum_[i]};
      measure->lost += lost * lost;
      measure->energy += double{wanted[i]} * double{wanted[i]};
    }
    if (compressor_.observes(id)) Publish(id);
  }

  void Publish(size_t id) {
    std::vector<std::byte>& frame = frames_[id];
    frame.clear();
    const std::unique_ptr<compress::Codec> lossless =
        compress::MakeCodec({.codec = compress::CodecId::kNone});
    const absl::Status status = compress::EncodeFrame(*lossless, {.gradient = sum_}, &frame);
    Check(status.ok(), status.ToString());
    aggregators_[id]->AppendShared(&frame);
    compressor_.Observe(id, frame);
  }

  const compress::CodecSpec spec_;
  const protocol::Layout layout_;
  const std::vector<compress::ChunkConfig> configs_;
  compress::Compressor compressor_;
  std::vector<std::unique_ptr<compress::Aggregator>> aggregators_;
  std::vector<size_t> offsets_;  // Start of each tensor in the concatenated gradients.
  std::vector<float> wanted_;    // The concatenated gradients plus residuals.
  std::vector<float> sum_;
  std::vector<std::vector<std::byte>> frames_;  // By chunk.
};

// Writes the gradient of a step.
void Fill(const SyntheticGradients& source, const CodecReportOptions& options, uint64_t step,
          std::vector<float>* gradients) {
  const uint64_t turn = options.gradients == 0 ? step : step % options.gradients;
  source.FillAll(0, turn, absl::MakeSpan(*gradients));
}

// Runs a codec's own feedback until a step hardly changes the residual, because residuals determine
// how hard accumulators are to encode. Returns the number of steps.
uint32_t Settle(const SyntheticGradients& source, const CodecReportOptions& options,
                Exchanger* exchanger, std::vector<float>* gradients) {
  double owed = exchanger->ResidualEnergy();
  int steady = 0;
  for (uint32_t step = 1; step <= options.settle; ++step) {
    Fill(source, options, step, gradients);
    const StepMeasure measure = exchanger->Step(step + 1, *gradients);
    const double before = owed;
    owed = exchanger->ResidualEnergy();
    steady = owed - before <= kSteadyGrowth * measure.energy ? steady + 1 : 0;
    if (steady == kSteadySteps) return step;
  }
  return options.settle;
}

void SetMeasures(const std::vector<StepMeasure>& steps, const std::vector<double>& streams,
                 size_t elements, CodecReportRow* row) {
  const auto n = static_cast<double>(elements);
  const auto count = static_cast<double>(steps.size());
  std::vector<double> encode, add, encode_share, add_share;
  double lost = 0, energy = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    encode.push_back(steps[i].encode_seconds * 1e9 / n);
    add.push_back(steps[i].add_seconds * 1e9 / n);
    encode_share.push_back(Quotient(streams[i], steps[i].encode_seconds));
    add_share.push_back(Quotient(streams[i], steps[i].add_seconds));
    row->bytes += steps[i].bytes / count;
    row->spec_bytes += steps[i].spec_bytes / count;
    row->kept_elements += steps[i].kept / count;
    lost += steps[i].lost;
    energy += steps[i].energy;
  }
  row->ratio = Quotient(n * sizeof(float), row->bytes);
  row->bits_per_element = row->bytes * 8 / n;
  row->nmse_accumulator = Quotient(lost, energy);
  row->encode_ns = Median(encode);
  row->encode_stream_share = Median(encode_share);
  row->add_ns = Median(add);
  row->add_stream_share = Median(add_share);
}

CodecReportRow MeasureCodec(const SyntheticGradients& source, const compress::CodecSpec& spec,
                            const CodecReportOptions& options, std::vector<double>* all_streams) {
  const size_t elements = protocol::TotalElements(source.table());
  std::vector<float> gradients(elements), stream(elements);
  Exchanger exchanger(source.table(), spec, options.seed);
  CodecReportRow row;
  row.spec = ToString(spec);
  row.spec_elements = exchanger.spec_elements();
  Fill(source, options, 0, &gradients);
  const StepMeasure first = exchanger.Step(1, gradients);
  row.first_bytes = first.bytes;
  row.nmse_gradient = Quotient(first.lost, first.energy);
  row.settle = Settle(source, options, &exchanger, &gradients);
  std::vector<StepMeasure> steps;
  std::vector<double> streams;
  for (uint64_t step = row.settle + 1; step <= row.settle + options.steps; ++step) {
    Fill(source, options, step, &gradients);
    streams.push_back(SecondsOfStream(gradients, &stream));
    steps.push_back(exchanger.Step(step + 1, gradients));
  }
  SetMeasures(steps, streams, elements, &row);
  if (compress::FindCodec(spec.codec).aggregation == compress::Aggregation::kVote) {
    row.nmse_gradient.reset();
    row.nmse_accumulator.reset();
  }
  all_streams->insert(all_streams->end(), streams.begin(), streams.end());
  return row;
}

absl::StatusOr<protocol::TensorTable> TableOf(const CodecReportOptions& options) {
  return options.table_path.empty() ? ModelTable(options.model)
                                    : ReadTensorTable(options.table_path);
}

std::string FormatNmse(const std::optional<double>& nmse) {
  return nmse.has_value() ? absl::StrFormat("%.2g", *nmse) : "-";
}

nlohmann::ordered_json NumberOrNull(const std::optional<double>& number) {
  return number.has_value() ? nlohmann::ordered_json(*number) : nlohmann::ordered_json();
}

}  // namespace

std::vector<std::string> UsualReportSpecs() {
  std::vector<std::string> specs;
  for (const compress::CodecEntry& entry : compress::Codecs()) specs.emplace_back(entry.example);
  for (const char* variant : {"topk:1%", "topk:1%+int8", "topk:1%+sign", "topk:0.1%+int4",
                              "topk:10%+int4", "ternary:0.7", "eden:1", "eden:4", "intsum:8"}) {
    specs.emplace_back(variant);
  }
  return specs;
}

absl::StatusOr<CodecReport> MeasureCodecs(const CodecReportOptions& options) {
  const absl::StatusOr<protocol::TensorTable> whole = TableOf(options);
  if (!whole.ok()) return whole.status();
  if (options.steps == 0) return absl::InvalidArgumentError("steps is 0; it must be 1 or more");
  std::vector<compress::CodecSpec> specs;
  for (const std::string& text : options.specs.empty() ? UsualReportSpecs() : options.specs) {
    const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(text);
    if (!spec.ok()) return spec.status();
    specs.push_back(*spec);
  }
  const SyntheticGradients source(ShrinkTable(*whole, options.elements), {.seed = options.seed});
  CodecReport report;
  report.model = options.table_path.empty() ? options.model : options.table_path;
  report.elements = protocol::TotalElements(source.table());
  report.tensors = source.table().size();
  report.steps = options.steps;
  report.seed = options.seed;
  std::vector<double> streams;
  for (const compress::CodecSpec& spec : specs) {
    report.rows.push_back(MeasureCodec(source, spec, options, &streams));
    if (options.done) options.done(report.rows.back().spec);
  }
  report.stream_ns = Median(streams) * 1e9 / static_cast<double>(report.elements);
  return report;
}

std::string FormatCodecReport(const CodecReport& report) {
  std::string text = absl::StrFormat(
      "%s: %d elements in %d tensors, %d steps of synthetic gradients, seed %d\n"
      "stream (read two, write one): %.2f ns per element, %.1f GB/s of fp32\n\n"
      "%-24s %12s %9s %8s %12s %7s %10s %10s %9s %7s %9s %7s\n",
      report.model, report.elements, report.tensors, report.steps, report.seed, report.stream_ns,
      Quotient(4, report.stream_ns), "codec", "bytes/step", "ratio", "bits/el", "large alone",
      "B/kept", "NMSE grad", "NMSE acc", "encode", "stream", "add", "stream");
  for (const CodecReportRow& row : report.rows) {
    const bool sparse = row.kept_elements > 0 && row.kept_elements < kSparse * row.spec_elements;
    absl::StrAppendFormat(
        &text, "%-24s %12.0f %8.1fx %8.3f %11.1fx %7s %10s %10s %6.2f ns %6.2fx %6.2f ns %6.2fx\n",
        row.spec, row.bytes, row.ratio, row.bits_per_element,
        Quotient(row.spec_elements * sizeof(float), row.spec_bytes),
        sparse ? absl::StrFormat("%.2f", row.spec_bytes / row.kept_elements) : "-",
        FormatNmse(row.nmse_gradient), FormatNmse(row.nmse_accumulator), row.encode_ns,
        row.encode_stream_share, row.add_ns, row.add_stream_share);
  }
  text +=
      "\nBytes include headers and small tensors. `large alone` and B/kept (bytes per kept "
      "element, for sparse codecs) exclude\ntensors that are too small for the codec. NMSE is lost "
      "energy divided by encoded energy, for the first gradient and for\ngradient + residual once "
      "the codec's own feedback is steady. Times are per element on one core; `stream` is "
      "the\nstream's time divided by them.\n";
  return text;
}

std::string CodecReportJson(const CodecReport& report) {
  nlohmann::ordered_json codecs = nlohmann::ordered_json::array();
  for (const CodecReportRow& row : report.rows) {
    codecs.push_back({{"spec", row.spec},
                      {"settle_steps", row.settle},
                      {"bytes_first_step", row.first_bytes},
                      {"bytes_per_step", row.bytes},
                      {"ratio", row.ratio},
                      {"spec_bytes_per_step", row.spec_bytes},
                      {"spec_elements", row.spec_elements},
                      {"kept_elements_per_step", row.kept_elements},
                      {"bits_per_element", row.bits_per_element},
                      {"nmse_gradient", NumberOrNull(row.nmse_gradient)},
                      {"nmse_accumulator", NumberOrNull(row.nmse_accumulator)},
                      {"encode_ns_per_element", row.encode_ns},
                      {"encode_gb_per_s", Quotient(4, row.encode_ns)},
                      {"encode_stream_share", row.encode_stream_share},
                      {"add_ns_per_element", row.add_ns},
                      {"add_gb_per_s", Quotient(4, row.add_ns)},
                      {"add_stream_share", row.add_stream_share}});
  }
  const nlohmann::ordered_json all = {{"schema", 1},
                                      {"model", report.model},
                                      {"elements", report.elements},
                                      {"tensors", report.tensors},
                                      {"steps", report.steps},
                                      {"seed", report.seed},
                                      {"stream_ns_per_element", report.stream_ns},
                                      {"codecs", codecs}};
  return all.dump(2) + "\n";
}

}  // namespace sluice::bench
