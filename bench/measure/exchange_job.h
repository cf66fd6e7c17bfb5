// SPDX-License-Identifier: Apache-2.0
// ExchangeJob: what `sluice bench exchange` measures, namely the tensors, the codecs, the number of
// processes, and the job file that all processes share. Pure, except for reading a table's file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"

namespace sluice::bench {

// Name of the job. A coordinator with another job name does not run this job.
inline constexpr absl::string_view kExchangeJobName = "exchange-bench";

// The exchanged gradients. Equal values give the same bits in every process.
struct ExchangeGradients {
  std::string model = "resnet50";
  // A file of tensors (bench/measure/table_file.h) instead of `model`, or empty.
  std::string table_path;
  uint64_t elements = 0;  // Reduces the model to about this many elements; 0 keeps all of them.
  uint64_t seed = 1;
};

struct ExchangeCodecs {
  std::string uplink;
  std::string downlink;

  friend bool operator==(const ExchangeCodecs&, const ExchangeCodecs&) = default;
};

struct ExchangeJob {
  ExchangeGradients gradients;
  ExchangeCodecs codecs;
  uint32_t workers = 2;
  uint32_t shards = 2;
  std::vector<std::string> sets;  // key=value settings that override the job file.
};

// Returns the codecs for --spec and --down-spec, either of which may be empty. The default is
// topk:1%+int4 up and topk:3%+int4 down. Without --down-spec, any other --spec applies to both
// directions.
ExchangeCodecs ChooseCodecs(absl::string_view spec, absl::string_view down_spec);

// Returns the errors of ModelTable or ReadTensorTable, or INVALID_ARGUMENT if the table has no
// trained tensors.
absl::StatusOr<protocol::TensorTable> ExchangeTable(const ExchangeGradients& gradients);

// Returns the complete job file, which every process of the measurement reads. Fails with
// INVALID_ARGUMENT if a spec or one of `sets` is invalid, or if `sets` contains a key that has a
// flag.
absl::StatusOr<std::string> ExchangeJobText(const ExchangeJob& job);

// Returns the largest share of the parameters on one shard, which determines the busiest link's
// load.
absl::StatusOr<double> LargestShardShare(const ExchangeJob& job,
                                         const protocol::TensorTable& table);

}  // namespace sluice::bench
