#include "cli/codec_report.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "compress/aggregator.h"
#include "compress/codec_table.h"
#include "compress/compressor.h"
#include "compress/frame.h"
#include "job/job_spec.h"
#include "job/layout.h"
#include "nlohmann/json.hpp"
#include "synthetic/gradients.h"
#include "synthetic/model_tables.h"

namespace sluice {
namespace {

constexpr float kCarry = 0.75f;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double Quotient(double a, double b) { return b > 0 ? a / b : 0; }

// What any encoder with feedback must do to memory at the least.
double SecondsOfStream(const std::vector<float>& gradient, std::vector<float>* acc) {
  const double begin = Now();
  const float* const g = gradient.data();
  float* const a = acc->data();
  for (size_t i = 0; i < gradient.size(); ++i) a[i] = a[i] * kCarry + g[i];
  return Now() - begin;
}

struct StepMeasure {
  double bytes = 0;
  double encode_seconds = 0;
  double add_seconds = 0;
  double lost = 0;    // Squares of what was encoded but not decoded.
  double energy = 0;  // Squares of what was encoded.
};

// One worker and its shards, for one codec.
class Exchanger {
 public:
  Exchanger(const TensorTable& table, const CodecSpec& spec, uint64_t seed)
      : layout_(MakeLayout(table, spec)),
        configs_(MakeConfigs(table, layout_, spec)),
        compressor_(configs_, {.seed = seed, .sender = 0}) {
    for (const ChunkConfig& config : configs_) aggregators_.push_back(MakeAggregator(config, 1));
    offsets_.push_back(0);
    for (const TensorInfo& tensor : table) offsets_.push_back(offsets_.back() + tensor.elements());
  }

  StepMeasure Step(uint64_t step, absl::Span<const float> gradients) {
    StepMeasure measure;
    for (size_t id = 0; id < configs_.size(); ++id) {
      const Chunk& chunk = layout_.chunks[id];
      OneChunk(id, step, gradients.subspan(offsets_[chunk.tensor] + chunk.offset, chunk.count),
               &measure);
    }
    const double begin = Now();
    compressor_.EndStep(step);
    measure.encode_seconds += Now() - begin;
    return measure;
  }

 private:
  static Layout MakeLayout(const TensorTable& table, const CodecSpec& spec) {
    const std::vector<bool> whole_rows(table.size(), spec.codec == CodecId::kPowerSgd);
    absl::StatusOr<Layout> layout = BuildLayout(table, 1, {}, whole_rows);
    Check(layout.ok(), layout.status().ToString());
    return *std::move(layout);
  }
  static std::vector<ChunkConfig> MakeConfigs(const TensorTable& table, const Layout& layout,
                                              const CodecSpec& spec) {
    CompressionSpec compression;
    compression.uplink = spec;
    std::vector<ChunkConfig> configs = ChunkConfigs(compression, table, layout, Direction::kUplink);
    for (size_t id = 0; id < configs.size(); ++id) configs[id].rows = layout.chunks[id].rows;
    return configs;
  }

  void OneChunk(size_t id, uint64_t step, absl::Span<const float> gradient, StepMeasure* measure) {
    wanted_.assign(gradient.begin(), gradient.end());
    const absl::Span<const float> owed = compressor_.residual(id);
    for (size_t i = 0; i < owed.size(); ++i) wanted_[i] += owed[i];
    frame_.clear();
    sum_.assign(gradient.size(), 0.0f);
    const double begin = Now();
    const absl::Status encoded = compressor_.Encode(id, step, gradient, &frame_);
    const double middle = Now();
    Check(encoded.ok(), encoded.ToString());
    const absl::Status valid = aggregators_[id]->Validate(0, frame_);
    Check(valid.ok(), valid.ToString());
    const SenderFrame received = {0, frame_};
    aggregators_[id]->Add({&received, 1}, absl::MakeSpan(sum_));
    aggregators_[id]->Close(1, absl::MakeSpan(sum_));
    const double end = Now();
    measure->encode_seconds += middle - begin;
    measure->add_seconds += end - middle;
    measure->bytes += static_cast<double>(frame_.size());
    for (size_t i = 0; i < sum_.size(); ++i) {
      const double lost = double{wanted_[i]} - double{sum_[i]};
      measure->lost += lost * lost;
      measure->energy += double{wanted_[i]} * double{wanted_[i]};
    }
    if (compressor_.observes(id)) Publish(id);
  }

  void Publish(size_t id) {
    frame_.clear();
    const std::unique_ptr<Codec> lossless = MakeCodec({.codec = CodecId::kNone});
    const absl::Status status = EncodeFrame(*lossless, {.gradient = sum_}, &frame_);
    Check(status.ok(), status.ToString());
    aggregators_[id]->AppendShared(&frame_);
    compressor_.Observe(id, frame_);
  }

  const Layout layout_;
  const std::vector<ChunkConfig> configs_;
  Compressor compressor_;
  std::vector<std::unique_ptr<Aggregator>> aggregators_;
  std::vector<size_t> offsets_;  // Of tensors in all gradients.
  std::vector<float> wanted_;    // gradient + residual of a chunk.
  std::vector<float> sum_;
  std::vector<std::byte> frame_;
};

CodecReportRow RowOf(const std::vector<StepMeasure>& steps, const std::vector<double>& streams,
                     size_t elements) {
  const auto n = static_cast<double>(elements);
  CodecReportRow row;
  std::vector<double> encode, add, encode_share, add_share;
  for (size_t i = steps.size() > 1 ? 1 : 0; i < steps.size(); ++i) {
    encode.push_back(steps[i].encode_seconds * 1e9 / n);
    add.push_back(steps[i].add_seconds * 1e9 / n);
    encode_share.push_back(Quotient(streams[i], steps[i].encode_seconds));
    add_share.push_back(Quotient(streams[i], steps[i].add_seconds));
  }
  const size_t half = steps.size() / 2;
  for (size_t i = half; i < steps.size(); ++i) row.bytes += steps[i].bytes;
  row.bytes /= static_cast<double>(steps.size() - half);
  row.first_bytes = steps.front().bytes;
  row.ratio = Quotient(n * sizeof(float), row.bytes);
  row.bits_per_element = row.bytes * 8 / n;
  row.nmse_gradient = Quotient(steps.front().lost, steps.front().energy);
  row.nmse_accumulator = Quotient(steps.back().lost, steps.back().energy);
  row.encode_ns = Median(encode);
  row.encode_stream_share = Median(encode_share);
  row.add_ns = Median(add);
  row.add_stream_share = Median(add_share);
  return row;
}

}  // namespace

std::vector<std::string> UsualReportSpecs() {
  std::vector<std::string> specs;
  for (const CodecEntry& entry : Codecs()) specs.emplace_back(entry.example);
  for (const char* variant : {"topk:1%", "topk:1%+int8", "topk:1%+sign", "topk:0.1%+int4",
                              "topk:10%+int4", "ternary:0.7", "eden:1", "eden:4", "intsum:8"}) {
    specs.emplace_back(variant);
  }
  return specs;
}

absl::StatusOr<CodecReport> MeasureCodecs(const CodecReportOptions& options) {
  absl::StatusOr<TensorTable> whole = ModelTable(options.model);
  if (!whole.ok()) return whole.status();
  if (options.steps == 0) return absl::InvalidArgumentError("steps is 0; it must be 1 or more");
  std::vector<CodecSpec> specs;
  for (const std::string& text : options.specs.empty() ? UsualReportSpecs() : options.specs) {
    const absl::StatusOr<CodecSpec> spec = ParseCodecSpec(text);
    if (!spec.ok()) return spec.status();
    specs.push_back(*spec);
  }
  const SyntheticGradients source(ShrinkTable(*whole, options.elements), {.seed = options.seed});
  CodecReport report;
  report.model = options.model;
  report.elements = TotalElements(source.table());
  report.tensors = source.table().size();
  report.steps = options.steps;
  report.seed = options.seed;
  std::vector<float> gradients(report.elements), stream(report.elements);
  std::vector<double> all_streams;
  for (const CodecSpec& spec : specs) {
    Exchanger exchanger(source.table(), spec, options.seed);
    std::vector<StepMeasure> steps;
    std::vector<double> streams;
    for (uint64_t step = 0; step < options.steps; ++step) {
      source.FillAll(0, step, absl::MakeSpan(gradients));
      streams.push_back(SecondsOfStream(gradients, &stream));
      steps.push_back(exchanger.Step(step + 1, gradients));
    }
    CodecReportRow& row = report.rows.emplace_back(RowOf(steps, streams, report.elements));
    row.spec = ToString(spec);
    all_streams.insert(all_streams.end(), streams.begin(), streams.end());
    if (options.done) options.done(row.spec);
  }
  report.stream_ns = Median(all_streams) * 1e9 / static_cast<double>(report.elements);
  return report;
}

std::string FormatCodecReport(const CodecReport& report) {
  std::string text = absl::StrFormat(
      "%s: %d elements in %d tensors, %d steps of synthetic gradients, seed %d\n"
      "stream (read two, write one): %.2f ns per element, %.1f GB/s of fp32\n\n"
      "%-24s %12s %9s %8s %10s %10s %9s %7s %9s %7s\n",
      report.model, report.elements, report.tensors, report.steps, report.seed, report.stream_ns,
      Quotient(4, report.stream_ns), "codec", "bytes/step", "ratio", "bits/el", "NMSE grad",
      "NMSE acc", "encode", "stream", "add", "stream");
  for (const CodecReportRow& row : report.rows) {
    absl::StrAppendFormat(&text,
                          "%-24s %12.0f %8.1fx %8.3f %10.2g %10.2g %6.2f ns %6.2fx %6.2f ns "
                          "%6.2fx\n",
                          row.spec, row.bytes, row.ratio, row.bits_per_element, row.nmse_gradient,
                          row.nmse_accumulator, row.encode_ns, row.encode_stream_share, row.add_ns,
                          row.add_stream_share);
  }
  text +=
      "\nBytes count headers and small tensors. NMSE: lost energy over encoded energy, of the "
      "first "
      "gradient and, after\nfeedback, of the last step's accumulator. Times are per element on one "
      "core; `stream` is the stream's time over theirs.\n";
  return text;
}

std::string CodecReportJson(const CodecReport& report) {
  nlohmann::ordered_json codecs = nlohmann::ordered_json::array();
  for (const CodecReportRow& row : report.rows) {
    codecs.push_back({{"spec", row.spec},
                      {"bytes_first_step", row.first_bytes},
                      {"bytes_per_step", row.bytes},
                      {"ratio", row.ratio},
                      {"bits_per_element", row.bits_per_element},
                      {"nmse_gradient", row.nmse_gradient},
                      {"nmse_accumulator", row.nmse_accumulator},
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

}  // namespace sluice
