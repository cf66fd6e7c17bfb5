// ExchangeJob: what `sluice bench exchange` measures: whose tensors, which codecs, how many
// processes, and the job file that all of them share. Pure but for reading a table's file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"

namespace sluice::bench {

// A name for the job: a coordinator that says another one runs something else.
inline constexpr absl::string_view kExchangeJobName = "exchange-bench";

// Whose gradients are exchanged. Equal ones give the same bits in every process.
struct ExchangeGradients {
  std::string model = "resnet50";
  std::string table_path;  // A file of tensors (bench/measure/table_file.h) instead; or empty.
  uint64_t elements = 0;   // Cut the model down to about so many; 0: all of it.
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
  std::vector<std::string> sets;  // key=value, over the job file.
};

// What --spec and --down-spec stand for, either of which may be empty: topk:1%+int4 up and
// topk:3%+int4 down by default; another --spec alone is for both ways.
ExchangeCodecs ChooseCodecs(absl::string_view spec, absl::string_view down_spec);

// As ModelTable or ReadTensorTable say it, or INVALID_ARGUMENT: nothing that is trained.
absl::StatusOr<protocol::TensorTable> ExchangeTable(const ExchangeGradients& gradients);

// The job file with everything written out; every process of the measurement reads it.
// INVALID_ARGUMENT: a spec or one of `sets` is wrong, or sets what a flag is for.
absl::StatusOr<std::string> ExchangeJobText(const ExchangeJob& job);

// The largest part of the parameters that lies on one shard: what the busiest link is told by.
absl::StatusOr<double> LargestShardShare(const ExchangeJob& job,
                                         const protocol::TensorTable& table);

}  // namespace sluice::bench
