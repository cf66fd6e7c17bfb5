#include "tests/sim/history.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "compress/frame.h"
#include "tests/sim/sim_data.h"

namespace sluice {
namespace {

absl::Span<const std::byte> AsBytes(const std::string& frame) {
  return {reinterpret_cast<const std::byte*>(frame.data()), frame.size()};
}

absl::Span<const std::byte> AsBytes(const std::vector<float>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> Decode(const std::string& frame, size_t count) {
  std::vector<float> values(count);
  Check(DecodeAddFrames(AsBytes(frame), absl::MakeSpan(values)).ok(),
        "frames that were sent decode");
  return values;
}

std::string Name(const BundleKey& key) {
  return absl::StrCat("step ", key.step, ", shard ", key.shard, ", bundle ", key.bundle);
}

}  // namespace

History::History(const ClusterOptions& options, const TensorTable& table, const Layout& layout)
    : options_(options), table_(table), layout_(layout) {
  for (uint32_t shard = 0; shard < options.shards; ++shard) {
    downlink_.emplace_back(
        ChunkConfigs(options.compression, table, layout, Direction::kDownlink),
        Compressor::Options{.seed = options.compression.seed, .sender = Compressor::kShardSender});
  }
  for (const ChunkConfig& chunk :
       ChunkConfigs(options.compression, table, layout, Direction::kUplink)) {
    aggregators_.push_back(MakeAggregator(chunk, options.ranks));
  }
}

bool History::Sent(uint32_t rank, const BundleKey& key, const Exchange& exchange) {
  return sent_[key].emplace(rank, SentBundle{exchange.skip, exchange.frames}).second;
}

const std::vector<std::vector<float>>& History::Values(uint32_t rank, uint64_t step) const {
  const auto [at, added] = values_.try_emplace({rank, step});
  if (added) at->second = SimValues(options_, table_, rank, step);
  return at->second;
}

void History::CheckResults(std::vector<std::string>* violations) {
  for (uint64_t step = options_.parameters_agree ? 1 : 0; step <= options_.steps; ++step) {
    CheckStep(step, violations);
  }
}

void History::CheckStep(uint64_t step, std::vector<std::string>* violations) {
  std::vector<std::vector<float>> means;
  for (const TensorInfo& tensor : table_) means.emplace_back(tensor.elements());
  for (uint32_t shard = 0; shard < layout_.bundles.size(); ++shard) {
    for (uint32_t bundle = 0; bundle < layout_.bundles[shard].size(); ++bundle) {
      const BundleKey key{step, shard, bundle};
      ClosingRecord record;
      const std::vector<std::string> frames = ExpectedResult(key, &record);
      for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
        if (seen_[{step, rank}].records[key] != record) {
          violations->push_back(absl::StrCat("rank ", rank, ", ", Name(key), ": another record"));
        }
      }
      const std::vector<uint32_t>& chunks = layout_.bundles[shard][bundle].chunks;
      for (size_t i = 0; i < frames.size(); ++i) {
        const Chunk& chunk = layout_.chunks[chunks[i]];
        const std::vector<float> mean = Decode(frames[i], chunk.count);
        std::copy(mean.begin(), mean.end(), means[chunk.tensor].begin() + chunk.offset);
        if (step == 0) continue;
        Totals& totals = downlink_totals_[chunks[i]];
        totals.got.resize(chunk.count);
        for (size_t j = 0; j < mean.size(); ++j) totals.got[j] += mean[j];
      }
    }
  }
  if (step > 0) {
    for (Compressor& shard : downlink_) shard.EndStep(step);
  }
  CheckPlainSum(step, means, violations);
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) {
    results_hash_ = ExtendCrc32c(results_hash_, AsBytes(means[tensor]));
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      const SeenStep& seen = seen_[{step, rank}];
      if (tensor < seen.means.size() && SameBits(seen.means[tensor], means[tensor])) continue;
      violations->push_back(absl::StrCat("rank ", rank, ", step ", step, ", ", table_[tensor].name,
                                         ": not the mean of what was sent"));
    }
  }
}

std::vector<std::string> History::ExpectedResult(const BundleKey& key, ClosingRecord* record) {
  const std::vector<uint32_t>& chunks = layout_.bundles[key.shard][key.bundle].chunks;
  std::vector<std::vector<float>> sums;
  for (const uint32_t id : chunks) sums.emplace_back(layout_.chunks[id].count);
  record->step = key.step;
  record->bundle = key.bundle;
  record->generation = 1;
  std::vector<std::string> frames;
  for (const auto& [rank, sent] : sent_[key]) {  // In rank order.
    record->included.push_back({.rank = rank,
                                .origin_step = key.step,
                                .checksum = BundleChecksum(sent.frames),
                                .skipped = sent.skip});
    if (key.step > 0) AddUplink(key, rank, sent);
    if (sent.skip) continue;
    ++record->n;
    if (key.step == 0) frames = sent.frames;
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (key.step == 0) continue;
      Aggregator& aggregator = *aggregators_[chunks[i]];
      const absl::Span<const std::byte> frame = AsBytes(sent.frames[i]);
      Check(aggregator.Validate(rank, frame).ok(), "what was sent is valid");
      aggregator.Add({{.sender = rank, .frame = frame}}, absl::MakeSpan(sums[i]));
    }
  }
  if (key.step > 0 && record->n > 0) {
    std::vector<absl::Span<const float>> means;
    for (size_t i = 0; i < chunks.size(); ++i) {
      Totals& totals = downlink_totals_[chunks[i]];
      totals.wanted.resize(sums[i].size());
      aggregators_[chunks[i]]->Close(record->n, absl::MakeSpan(sums[i]));
      for (size_t j = 0; j < sums[i].size(); ++j) {
        totals.wanted[j] += sums[i][j];
        totals.magnitude = std::max(totals.magnitude, std::abs(double{sums[i][j]}));
      }
      means.push_back(sums[i]);
    }
    std::vector<std::vector<std::byte>> encoded;
    Compressor& downlink = downlink_[key.shard];
    Check(downlink.EncodeAll(chunks, key.step, means, &encoded).ok(), "means are finite");
    for (size_t i = 0; i < chunks.size(); ++i) {
      downlink.Observe(chunks[i], encoded[i]);
      aggregators_[chunks[i]]->AppendShared(&encoded[i]);
      frames.emplace_back(reinterpret_cast<const char*>(encoded[i].data()), encoded[i].size());
    }
  }
  record->result_checksum = BundleChecksum(frames);
  return frames;
}

void History::AddUplink(const BundleKey& key, uint32_t rank, const SentBundle& sent) {
  if (sent.skip) return;
  const std::vector<std::vector<float>>& gradients = Values(rank, key.step);
  const std::vector<uint32_t>& chunks = layout_.bundles[key.shard][key.bundle].chunks;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = layout_.chunks[chunks[i]];
    const std::vector<float> decoded = Decode(sent.frames[i], chunk.count);
    Totals& totals = uplink_totals_[{rank, chunks[i]}];
    totals.wanted.resize(chunk.count);
    totals.got.resize(chunk.count);
    for (uint32_t j = 0; j < chunk.count; ++j) {
      const double gradient = gradients[chunk.tensor][chunk.offset + j];
      totals.wanted[j] += gradient;
      totals.got[j] += decoded[j];
      totals.magnitude = std::max(totals.magnitude, std::abs(gradient));
    }
  }
}

void History::CheckPlainSum(uint64_t step, const std::vector<std::vector<float>>& means,
                            std::vector<std::string>* violations) const {
  if (options_.compression.uplink.codec != CodecId::kNone ||
      options_.compression.downlink.codec != CodecId::kNone ||
      options_.compression.min_elements > 0) {
    return;
  }
  std::vector<std::vector<float>> sums;
  for (const TensorInfo& tensor : table_) sums.emplace_back(tensor.elements());
  for (const Chunk& chunk : layout_.chunks) {
    uint32_t n = 0;
    float* const sum = sums[chunk.tensor].data() + chunk.offset;
    for (const auto& [rank, sent] : sent_.at({step, chunk.shard, chunk.bundle})) {
      if (sent.skip) continue;
      ++n;
      const std::vector<std::vector<float>>& values = Values(rank, step);
      for (uint32_t i = 0; i < chunk.count; ++i) sum[i] += values[chunk.tensor][chunk.offset + i];
    }
    for (uint32_t i = 0; i < chunk.count && n > 0; ++i) sum[i] /= static_cast<float>(n);
  }
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) {
    if (SameBits(sums[tensor], means[tensor])) continue;
    violations->push_back(absl::StrCat("step ", step, ", ", table_[tensor].name,
                                       ": not the plain sum in rank order"));
  }
}

void History::CheckUplink(uint32_t rank, uint32_t chunk, absl::Span<const float> residual,
                          std::vector<std::string>* violations) const {
  const auto totals = uplink_totals_.find({rank, chunk});
  if (totals == uplink_totals_.end()) return;
  CheckBalance(absl::StrCat("rank ", rank, ", chunk ", chunk, ": sent"), totals->second, residual,
               violations);
}

void History::CheckDownlink(uint32_t chunk, absl::Span<const float> residual,
                            std::vector<std::string>* violations) const {
  const auto totals = downlink_totals_.find(chunk);
  if (totals == downlink_totals_.end()) return;
  CheckBalance(absl::StrCat("shard, chunk ", chunk, ": published"), totals->second, residual,
               violations);
}

void History::CheckBalance(const std::string& whose, const Totals& totals,
                           absl::Span<const float> residual,
                           std::vector<std::string>* violations) const {
  const double allowed = 1e-5 * totals.magnitude * static_cast<double>(options_.steps);
  for (size_t i = 0; i < totals.wanted.size(); ++i) {
    const double owed = residual.empty() ? 0.0 : residual[i];
    const double off = std::abs(totals.wanted[i] - totals.got[i] - owed);
    if (off <= allowed) continue;
    violations->push_back(
        absl::StrCat(whose, " and residual do not add up: off by ", off, " at element ", i));
    return;
  }
}

}  // namespace sluice
