// SPDX-License-Identifier: Apache-2.0
// CodecReport: measures each codec on a model's gradients: bytes, errors and times. It uses the
// Compressor, layout and Aggregator of a job, without a network. It implements `sluice bench
// codecs`.
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
  // A file of tensors (bench/measure/table_file.h) instead of `model`, or empty.
  std::string table_path;
  std::vector<std::string> specs;  // If empty, UsualReportSpecs().
  uint64_t elements = 0;  // Reduces the model to about this many elements; 0 keeps all of them.
  uint32_t steps = 10;    // Measured steps, at least 1.
  uint32_t settle = 40;   // Maximum number of warm-up steps, until feedback is steady.
  // This many gradients take turns. 0: each step has its own.
  uint32_t gradients = 0;
  uint64_t seed = 1;
  // Called after each codec, for progress output; may be empty.
  std::function<void(const std::string& spec)> done;
};

// Means and medians cover the measured steps. Times are for one core.
struct CodecReportRow {
  std::string spec;     // In the format of ToString.
  uint32_t settle = 0;  // Steps until the feedback was steady, or the limit.
  // Bytes of the first step, including frame headers and all small tensors.
  double first_bytes = 0;
  double bytes = 0;  // Per step.
  double ratio = 0;  // fp32 bytes divided by `bytes`.
  // Bytes per step of the tensors that the spec applies to, which excludes small tensors.
  double spec_bytes = 0;
  double spec_elements = 0;  // Elements of the same tensors.
  double kept_elements = 0;  // Elements of the same tensors per step that do not decode to zero.
  double bits_per_element = 0;
  // The fields are |x - decoded|^2 / |x|^2. They are absent for a vote, which does not estimate x.
  std::optional<double> nmse_gradient;     // In the first step, with x = gradient.
  std::optional<double> nmse_accumulator;  // With x = gradient + residual.
  double encode_ns = 0;                    // Per element.
  // The stream's time divided by the encoding time; 1 is memory speed.
  double encode_stream_share = 0;
  double add_ns = 0;  // Time per element to check, decode and add.
  double add_stream_share = 0;
};

struct CodecReport {
  std::string model;
  uint64_t elements = 0;
  size_t tensors = 0;
  uint32_t steps = 0;
  uint64_t seed = 0;
  // Time per element of the stream acc = acc * c + g over arrays of equal size; median of all rows.
  double stream_ns = 0;
  std::vector<CodecReportRow> rows;
};

// Returns each codec's example and common variants.
std::vector<std::string> UsualReportSpecs();

// Fails with INVALID_ARGUMENT and the message of ModelTable or ParseCodecSpec for an unknown model
// or an invalid spec. Passes on ReadTensorTable's errors.
absl::StatusOr<CodecReport> MeasureCodecs(const CodecReportOptions& options);

std::string FormatCodecReport(const CodecReport& report);

// {schema: 1, model, elements, tensors, steps, seed, stream_ns_per_element, codecs: [{spec,
// settle_steps, bytes_first_step, bytes_per_step, ratio, spec_bytes_per_step, spec_elements,
// kept_elements_per_step, bits_per_element, nmse_gradient, nmse_accumulator (null for a vote),
// encode_ns_per_element, encode_gb_per_s, encode_stream_share, add_ns_per_element, add_gb_per_s,
// add_stream_share}]}. Later versions keep these keys and may add others. GB/s values count the
// bytes of the fp32 elements, not all memory traffic.
std::string CodecReportJson(const CodecReport& report);

}  // namespace sluice::bench
