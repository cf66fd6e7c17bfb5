// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/exchange_forecast.h"

#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "bench/measure/codec_report.h"

namespace sluice::cli {
namespace {

// The model whose reduced tensors stay large, so that headers count as little as in a whole model.
constexpr char kModel[] = "vgg16";
constexpr uint64_t kMeasuredElements = 1 << 21;
// Until topk has found its threshold. Its first frames are about twice as large.
constexpr uint32_t kSettlingSteps = 5;
constexpr double kBitsPerByte = 8;

struct CodecPair {
  const char* uplink;
  const char* downlink;
};
// One for each kind of codec. docs/choosing-a-codec.md recommends the last one for slow links.
constexpr CodecPair kPairs[] = {
    {"none", "none"}, {"fp16", "fp16"}, {"int8", "int8"}, {"topk:1%+int4", "topk:3%+int4"}};

std::map<std::string, double> MeasureBits() {
  bench::CodecReportOptions options;
  options.model = kModel;
  options.elements = kMeasuredElements;
  options.steps = 1;
  options.settle = kSettlingSteps;
  for (const CodecPair& pair : kPairs) {
    options.specs.push_back(pair.uplink);
    if (std::string(pair.downlink) != pair.uplink) options.specs.push_back(pair.downlink);
  }
  const absl::StatusOr<bench::CodecReport> report = bench::MeasureCodecs(options);
  Check(report.ok(), "the forecast's codecs are specs");
  std::map<std::string, double> bits;
  for (size_t i = 0; i < report->rows.size(); ++i) {
    bits[options.specs[i]] = report->rows[i].bits_per_element;
  }
  return bits;
}

}  // namespace

std::vector<ForecastRow> ForecastExchange(const DoctorFindings& findings, uint64_t parameters) {
  std::vector<ForecastRow> rows;
  const double up = findings.sent_bytes_per_second;
  const double down = findings.received_bytes_per_second;
  if (!(up > 0) || !(down > 0)) return rows;
  const std::map<std::string, double> bits = MeasureBits();
  for (const CodecPair& pair : kPairs) {
    ForecastRow row{pair.uplink, pair.downlink, bits.at(pair.uplink), bits.at(pair.downlink)};
    row.seconds =
        findings.round_trip_seconds + static_cast<double>(parameters) / kBitsPerByte *
                                          (row.uplink_bits / up + row.downlink_bits / down);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string FormatForecast(const std::vector<ForecastRow>& rows, uint64_t parameters) {
  std::string text = absl::StrCat("Transfer of one step of ", parameters,
                                  " parameters, from one worker here to shards there and back:");
  absl::StrAppendFormat(&text, "\n%-14s %-14s %15s %12s", "uplink", "downlink", "bits up/down",
                        "seconds");
  for (const ForecastRow& row : rows) {
    absl::StrAppendFormat(&text, "\n%-14s %-14s %15s %12.3g", row.uplink, row.downlink,
                          absl::StrFormat("%.3g/%.3g", row.uplink_bits, row.downlink_bits),
                          row.seconds);
  }
  return text;
}

}  // namespace sluice::cli
