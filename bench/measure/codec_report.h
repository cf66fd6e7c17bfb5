// CodecReport: what each codec does to a model's gradients: bytes, errors and times, through the
// same Compressor, layout and Aggregator as in a job, without a network. The work of
// `sluice bench codecs`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/codec_spec.h"

namespace sluice::bench {

struct CodecReportOptions {
  std::string model = "resnet50";
  std::string table_path;  // A file of tensors (bench/measure/table_file.h) instead; or empty.
  std::vector<std::string> specs;  // Empty: UsualReportSpecs().
  uint64_t elements = 0;           // Cut the model down to about so many; 0: all of it.
  uint32_t steps = 10;             // Measured ones, at least 1.
  uint32_t settle = 40;            // At most so many steps before them, until feedback is steady.
  uint64_t seed = 1;
  // Called after each codec, for progress; may be empty.
  std::function<void(const std::string& spec)> done;
};

// Means and medians are over the measured steps, times of one core.
struct CodecReportRow {
  std::string spec;          // As ToString has it.
  uint32_t settle = 0;       // Steps until its feedback was steady, or the limit.
  double first_bytes = 0;    // Of the first step, frame headers and all small tensors counted.
  double bytes = 0;          // Of a step.
  double ratio = 0;          // fp32 bytes over `bytes`.
  double spec_bytes = 0;     // Of `bytes`, those of tensors that the spec is for: not the small.
  double spec_elements = 0;  // Of these tensors.
  double kept_elements = 0;  // Of these in a step, those that decode to something but zero.
  double bits_per_element = 0;
  // |x - decoded|^2 / |x|^2. Nothing for a vote, which does not estimate x.
  std::optional<double> nmse_gradient;     // In the first step, where nothing is owed.
  std::optional<double> nmse_accumulator;  // With x = gradient + residual.
  double encode_ns = 0;                    // Per element.
  double encode_stream_share = 0;  // Time of the stream over that of encoding; 1 is memory speed.
  double add_ns = 0;               // Check, decode and add, per element.
  double add_stream_share = 0;
};

struct CodecReport {
  std::string model;
  uint64_t elements = 0;
  size_t tensors = 0;
  uint32_t steps = 0;
  uint64_t seed = 0;
  double stream_ns = 0;  // acc = acc * c + g over equal arrays, per element; median of all rows.
  std::vector<CodecReportRow> rows;
};

// Every codec of the table by its example, and the variants people ask about.
std::vector<std::string> UsualReportSpecs();

// INVALID_ARGUMENT for an unknown model or a wrong spec: as ModelTable and ParseCodecSpec say it;
// a table's file has ReadTensorTable's errors.
absl::StatusOr<CodecReport> MeasureCodecs(const CodecReportOptions& options);

std::string FormatCodecReport(const CodecReport& report);

// {schema: 1, model, elements, tensors, steps, seed, stream_ns_per_element, codecs: [{spec,
// settle_steps, bytes_first_step, bytes_per_step, ratio, spec_bytes_per_step, spec_elements,
// kept_elements_per_step, bits_per_element, nmse_gradient, nmse_accumulator (null: a vote has
// none), encode_ns_per_element, encode_gb_per_s, encode_stream_share, add_ns_per_element,
// add_gb_per_s, add_stream_share}]}. Keys stay; new ones may come. GB/s count fp32 elements, not
// all traffic.
std::string CodecReportJson(const CodecReport& report);

}  // namespace sluice::bench
