// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/shrunk_job.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/codec_table.h"
#include "compress/frame.h"

namespace sluice::planning {
namespace {

// Lossless fp32 of the value 0, so that nothing grows over the steps.
std::string FrameOfOneElement() {
  const std::unique_ptr<compress::Codec> codec =
      compress::MakeCodec({.codec = compress::CodecId::kNone});
  const std::vector<float> values(1);
  std::vector<std::byte> frame;
  Check(compress::EncodeFrame(*codec, {.gradient = values}, &frame).ok(), "a 0 can be encoded");
  return {reinterpret_cast<const char*>(frame.data()), frame.size()};
}

}  // namespace

ShrunkJob::ShrunkJob(const job::JobSpec& job, const protocol::Layout& layout, double frame_bytes)
    : job_(job),
      frame_bytes_(std::max(frame_bytes, 1.0)),
      ranks_(job.exchange.elastic() ? std::max(job.max_workers, job.workers) : job.workers),
      agree_(!job::ShardOptimizer(job).has_value()),
      frame_(FrameOfOneElement()) {
  // The codecs, the plans, the guard and the merging work on values. The simulation has none.
  job_.exchange.compression.uplink = {.codec = compress::CodecId::kNone};
  job_.exchange.compression.downlink = job_.exchange.compression.uplink;
  job_.exchange.compression.overrides.clear();
  job_.exchange.control = {};
  job_.exchange.guard = {};
  job_.exchange.merge = {};
  layout_.fragments = layout.fragments;
  for (uint32_t shard = 0; shard < layout.bundles.size(); ++shard) {
    first_tensor_.push_back(static_cast<uint32_t>(table_.size()));
    layout_.bundles.emplace_back();
    for (uint32_t bundle = 0; bundle < layout.bundles[shard].size(); ++bundle) {
      const protocol::Bundle& full = layout.bundles[shard][bundle];
      if (full.chunks.empty()) {
        layout_.bundles.back().push_back({.chunks = {}, .elements = 0, .buffers = true});
        continue;
      }
      Check(!full.buffers, "the simulation exchanges trained tensors");
      const auto id = static_cast<uint32_t>(layout_.chunks.size());
      table_.push_back(
          {.name = absl::StrCat("s", shard, "b", bundle), .shape = {1}, .strides = {}});
      layout_.chunks.push_back({.tensor = id,
                                .offset = 0,
                                .count = 1,
                                .shard = shard,
                                .bundle = bundle,
                                .rows = 0,
                                .fragment = full.fragment});
      layout_.bundles.back().push_back(
          {.chunks = {id}, .elements = 1, .buffers = false, .fragment = full.fragment});
    }
  }
}

uint64_t ShrunkJob::Shrunk(uint64_t window_bytes) const {
  const double bundles = std::floor(static_cast<double>(window_bytes) / frame_bytes_);
  return static_cast<uint64_t>(std::clamp(bundles, 1.0, 1e6)) * frame_.size();
}

server::ShardOptions ShrunkJob::ForShard(uint32_t shard) const {
  server::ShardOptions options;
  options.shard = shard;
  options.table = table_;
  options.layout = layout_;
  options.exchange = job_.exchange;
  options.rule = job::ShardOptimizer(job_);
  options.job_uid = job_uid();
  options.incarnations.resize(ranks_);
  std::iota(options.incarnations.begin(), options.incarnations.begin() + job_.workers, 1);
  options.parameters_agree = agree_;
  options.window_bytes = Shrunk(job_.server.window_bytes);
  options.unanswered_bytes = options.window_bytes / 4;
  options.max_memory = std::numeric_limits<uint64_t>::max() / 2;
  options.straggler_notice = absl::InfiniteDuration();
  return options;
}

worker::PipelineOptions ShrunkJob::ForWorker(const protocol::Sender& sender, uint64_t first_step,
                                             bool is_newcomer) const {
  worker::PipelineOptions options;
  options.table = table_;
  options.layout = layout_;
  options.sender = sender;
  options.world_size = ranks_;
  options.first_step = first_step;
  options.parameters_agree = agree_ || is_newcomer;
  options.exchange = job_.exchange;
  options.late_joiner = is_newcomer;
  options.window_bytes = Shrunk(job_.server.window_bytes);
  return options;
}

}  // namespace sluice::planning
