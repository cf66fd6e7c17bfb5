// SPDX-License-Identifier: Apache-2.0
#include "client/conversions.h"

#include <string>
#include <utility>

#include "compress/codec_spec.h"
#include "compress/element_type.h"

namespace sluice::client {
namespace {

static_assert(static_cast<int>(LogLevel::kDebug) == static_cast<int>(sluice::LogLevel::kDebug) &&
                  static_cast<int>(LogLevel::kError) == static_cast<int>(sluice::LogLevel::kError),
              "the library's levels are those of the core");

protocol::DType ToDType(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return protocol::DType::kFloat32;
    case ElementType::kBfloat16:
      return protocol::DType::kBFloat16;
    case ElementType::kFloat16:
      return protocol::DType::kFloat16;
  }
  return protocol::DType::kFloat32;
}

}  // namespace

Status FromStatus(const absl::Status& status) {
  return {.code = static_cast<StatusCode>(status.raw_code()),
          .message = std::string(status.message()),
          .rollback = worker::IsRollback(status)};
}

protocol::TensorTable ToTable(const std::vector<Tensor>& tensors) {
  protocol::TensorTable table;
  table.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    table.push_back({.name = tensor.name,
                     .shape = tensor.shape,
                     .strides = tensor.strides,
                     .dtype = ToDType(tensor.type),
                     .role = tensor.is_buffer ? protocol::TensorRole::kBuffer
                                              : protocol::TensorRole::kTrained});
  }
  return table;
}

worker::GradientView ToView(const Gradient& gradient) {
  return {gradient.data, gradient.size, static_cast<compress::ElementType>(gradient.type),
          gradient.scale};
}

JobSummary Summarize(const job::JobSpec& job) {
  const bool local = job::TraitsOf(job.exchange.mode).local_steps;
  const bool nesterov = job.local.outer_optimizer == job::OuterOptimizer::kNesterov;
  return {.name = job.name,
          .mode = std::string(NameOf(job.exchange.mode)),
          .workers = job.workers,
          .shards = job.shards,
          .uplink = compress::ToString(job.exchange.compression.uplink),
          .downlink = compress::ToString(job.exchange.compression.downlink),
          .shards_update = job::ShardOptimizer(job).has_value(),
          .sends_weights = job::SendsWeights(job),
          .local_steps = job::StepsPerExchange(job),
          .outer_optimizer = std::string(local ? NameOf(job.local.outer_optimizer) : ""),
          .outer_lr = local ? job.local.outer_lr : 1,
          .outer_momentum = local && nesterov ? job.local.outer_momentum : 0,
          .fragments = job.exchange.compression.layout.fragments,
          .fragment_delay = job.local.fragment_delay,
          .merge_alpha = job.local.merge_alpha,
          .merge_weights = std::string(NameOf(job.exchange.merge.weights)),
          .checkpoints = job.checkpoint.enabled(),
          .waits_for_all =
              job.exchange.quorum == 0 && job.exchange.membership == job::Membership::kFixed};
}

Joined FromJoin(const worker::JoinInfo& info) {
  return {.rank = info.rank,
          .world_size = info.world_size,
          .first_step = info.first_step,
          .restored_step = info.restored_step,
          .restored = info.restored,
          .parameters_agree = info.parameters_agree};
}

StepResult FromResult(const worker::StepResult& result) {
  return {.step = result.step,
          .n_min = result.n_min,
          .n_max = result.n_max,
          .bundles = result.bundles,
          .bundles_skipped_here = result.bundles_skipped_here,
          .first_skipped_tensor = result.first_skipped_tensor,
          .without_mean = result.without_mean,
          .buffers_averaged = result.buffers_averaged,
          .checkpoint_due = result.checkpoint_due,
          .staleness = result.staleness,
          .steps_behind = result.steps_behind};
}

Figures FromFigures(const worker::SessionFigures& figures) {
  return {.step = figures.progress.step,
          .steps = figures.traffic.steps,
          .bytes_up = figures.traffic.bytes_up,
          .bytes_down = figures.traffic.bytes_down,
          .dense_bytes = figures.dense_bytes,
          .skipped_bundles = figures.skipped_bundles,
          .encode_seconds = figures.traffic.encode_seconds,
          .decode_seconds = figures.traffic.decode_seconds,
          .exposed_seconds = figures.traffic.exposed_seconds};
}

Logger ToLogger(std::string component, const LogSink& sink) {
  LogOptions log;
  if (sink) {
    log.sink = [sink](sluice::LogLevel level, absl::string_view from, absl::string_view text) {
      sink(static_cast<LogLevel>(level), {from.data(), from.size()}, {text.data(), text.size()});
    };
  }
  return Logger(std::move(component), std::move(log));
}

}  // namespace sluice::client
