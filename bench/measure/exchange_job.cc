// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/exchange_job.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/measure/model_tables.h"
#include "bench/measure/table_file.h"
#include "job/file/job_file.h"
#include "protocol/layout.h"

namespace sluice::bench {
namespace {

constexpr absl::string_view kUsualUplink = "topk:1%+int4";
constexpr absl::string_view kUsualDownlink = "topk:3%+int4";

// Job files need a model, data and an optimizer, although the measurement uses none of them.
std::string JobFile(const ExchangeJob& job) {
  return absl::StrCat("name: ", kExchangeJobName, "\nworkers: ", job.workers,
                      "\nshards: ", job.shards,
                      "\nmodel: {name: custom}\ndata: {format: custom}\n"
                      "batch_size_per_worker: 1\nsteps: 1000000\noptimizer: {lr: 0.1}\n",
                      "compression: {uplink: \"", job.codecs.uplink, "\", downlink: \"",
                      job.codecs.downlink, "\"}\n");
}

absl::Status CheckSpec(absl::string_view flag, absl::string_view text) {
  const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(text);
  if (spec.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", spec.status().message()));
}

absl::StatusOr<job::JobSpec> LoadExchangeJob(const ExchangeJob& job) {
  if (absl::Status status = CheckSpec("--spec", job.codecs.uplink); !status.ok()) return status;
  if (absl::Status status = CheckSpec("--down-spec", job.codecs.downlink); !status.ok()) {
    return status;
  }
  absl::StatusOr<job::JobSpec> spec =
      job::LoadJobFromText(JobFile(job), "the job", {.path = {}, .set = job.sets});
  if (!spec.ok()) return spec.status();
  if (spec->workers != job.workers || spec->shards != job.shards) {
    return absl::InvalidArgumentError(
        "--set: use the flags --workers and --shards for workers and shards");
  }
  if (spec->checkpoint.enabled()) {
    return absl::InvalidArgumentError(
        "--set checkpoint.dir: an exchange is measured without checkpoints; bench/survival.py "
        "measures their cost");
  }
  return spec;
}

}  // namespace

ExchangeCodecs ChooseCodecs(absl::string_view spec, absl::string_view down_spec) {
  ExchangeCodecs codecs;
  codecs.uplink = std::string(spec.empty() ? kUsualUplink : spec);
  const absl::string_view usual = codecs.uplink == kUsualUplink ? kUsualDownlink : spec;
  codecs.downlink = std::string(down_spec.empty() ? usual : down_spec);
  return codecs;
}

absl::StatusOr<protocol::TensorTable> ExchangeTable(const ExchangeGradients& gradients) {
  const absl::StatusOr<protocol::TensorTable> whole = gradients.table_path.empty()
                                                          ? ModelTable(gradients.model)
                                                          : ReadTensorTable(gradients.table_path);
  if (!whole.ok()) return whole.status();
  protocol::TensorTable table = ShrinkTable(*whole, gradients.elements);
  if (absl::Status status = protocol::ValidateTensorTable(table); !status.ok()) return status;
  return table;
}

absl::StatusOr<std::string> ExchangeJobText(const ExchangeJob& job) {
  const absl::StatusOr<job::JobSpec> spec = LoadExchangeJob(job);
  if (!spec.ok()) return spec.status();
  return job::ResolvedJobTextFromText(JobFile(job), "the job", {.path = {}, .set = job.sets});
}

absl::StatusOr<double> LargestShardShare(const ExchangeJob& job,
                                         const protocol::TensorTable& table) {
  const absl::StatusOr<job::JobSpec> spec = LoadExchangeJob(job);
  if (!spec.ok()) return spec.status();
  const absl::StatusOr<protocol::Layout> layout =
      protocol::BuildLayout(table, job.shards, spec->exchange.compression.layout,
                            protocol::WholeRows(spec->exchange.compression, table));
  if (!layout.ok()) return layout.status();
  uint64_t most = 0;
  for (const std::vector<protocol::Bundle>& bundles : layout->bundles) {
    uint64_t elements = 0;
    for (const protocol::Bundle& bundle : bundles) elements += bundle.elements;
    most = std::max(most, elements);
  }
  return static_cast<double>(most) / static_cast<double>(protocol::TotalElements(table));
}

}  // namespace sluice::bench
