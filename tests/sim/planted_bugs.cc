// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/planted_bugs.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compress/codec_table.h"
#include "compress/frame.h"

namespace sluice {
namespace {

class HonestEncoder final : public SimEncoder {
 public:
  HonestEncoder(const protocol::TensorTable& table, const protocol::Layout& layout,
                const protocol::CompressionSpec& compression, uint32_t rank)
      : encoder_(table, layout, compression, rank) {}
  worker::EncodedBundle Encode(const worker::EncodeTask& task) override {
    return encoder_.Encode(task);
  }
  void Observe(const worker::Published& published) override {
    encoder_.Observe(published.chunks, published.frames);
  }
  void Settle(worker::LateParts late) override {
    Check(encoder_.Settle(std::move(late)).ok(), "late work was valid");
  }
  compress::SavedCompressor Save() const override { return encoder_.Save(); }
  absl::Status Restore(const compress::SavedCompressor& saved, bool plans) override {
    return encoder_.Restore(saved, plans);
  }
  absl::Span<const float> Residual(uint32_t chunk) const override {
    return encoder_.compressor().residual(chunk);
  }

 private:
  worker::BundleEncoder encoder_;
};

std::vector<std::byte> DenseFrame(const std::vector<float>& values) {
  std::vector<std::byte> frame;
  const std::unique_ptr<compress::Codec> dense =
      compress::MakeCodec({.codec = compress::CodecId::kNone});
  Check(compress::EncodeFrame(*dense, {.gradient = values, .residual = {}}, &frame).ok(),
        "values are finite");
  return frame;
}

// A BundleEncoder that mishandles its residuals.
class CarelessEncoder final : public SimEncoder {
 public:
  CarelessEncoder(SurvivalBug bug, const protocol::TensorTable& table,
                  const protocol::Layout& layout, const protocol::CompressionSpec& compression,
                  uint32_t rank)
      : bug_(bug),
        compressor_(
            protocol::ChunkConfigs(compression, table, layout, protocol::Direction::kUplink),
            {.seed = compression.seed, .sender = rank}) {}

  worker::EncodedBundle Encode(const worker::EncodeTask& task) override {
    worker::EncodedBundle encoded;
    encoded.step = task.step;
    encoded.shard = task.shard;
    encoded.bundle = task.bundle;
    Observe({task.chunks, task.published});
    if (task.step == 0) return EncodeParameters(task, std::move(encoded));
    std::vector<std::vector<std::byte>> frames;
    encoded.skipped = !compressor_
                           .EncodeEach(
                               task.chunks, task.step,
                               [&](size_t i) { return task.gradients[i].floats(); }, &frames)
                           .ok();
    if (encoded.skipped) {
      if (bug_ == SurvivalBug::kResidualLostOnSkip) Forget(task.chunks);
    } else {
      for (size_t i = 0; i < frames.size(); ++i) {
        encoded.frames.emplace_back(reinterpret_cast<const char*>(frames[i].data()),
                                    frames[i].size());
        if (bug_ == SurvivalBug::kResidualTakenBackTwice && task.step == 2) {
          Check(compressor_.ReturnFrame(task.chunks[i], frames[i]).ok(), "its own frame");
        }
      }
    }
    if (task.last_of_step) compressor_.EndStep(task.step);
    return encoded;
  }
  void Observe(const worker::Published& published) override {
    for (size_t i = 0; i < published.frames.size(); ++i) {
      compressor_.Observe(published.chunks[i], protocol::FrameBytes(published.frames[i]));
    }
  }
  void Settle(worker::LateParts) override {}
  compress::SavedCompressor Save() const override { return compressor_.Save(); }
  absl::Status Restore(const compress::SavedCompressor& saved, bool) override {
    return compressor_.Restore(saved);
  }
  absl::Span<const float> Residual(uint32_t chunk) const override {
    return compressor_.residual(chunk);
  }

 private:
  static worker::EncodedBundle EncodeParameters(const worker::EncodeTask& task,
                                                worker::EncodedBundle encoded) {
    for (const worker::GradientView& gradient : task.gradients) {
      const absl::Span<const float> values = gradient.floats();
      const std::vector<std::byte> frame = DenseFrame({values.begin(), values.end()});
      encoded.frames.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
    }
    return encoded;
  }
  void Forget(absl::Span<const uint32_t> chunks) {
    for (const uint32_t chunk : chunks) {
      std::vector<float> owed(compressor_.residual(chunk).begin(),
                              compressor_.residual(chunk).end());
      if (owed.empty()) continue;
      for (float& x : owed) x = -x;
      Check(compressor_.ReturnFrame(chunk, DenseFrame(owed)).ok(), "a residual is finite");
    }
  }

  const SurvivalBug bug_;
  compress::Compressor compressor_;
};

}  // namespace

std::unique_ptr<SimEncoder> MakeSimEncoder(SurvivalBug bug, const protocol::TensorTable& table,
                                           const protocol::Layout& layout,
                                           const protocol::CompressionSpec& compression,
                                           uint32_t rank) {
  if (bug == SurvivalBug::kResidualLostOnSkip || bug == SurvivalBug::kResidualTakenBackTwice) {
    return std::make_unique<CarelessEncoder>(bug, table, layout, compression, rank);
  }
  return std::make_unique<HonestEncoder>(table, layout, compression, rank);
}

void PlantInReplica(SurvivalBug bug, protocol::ShardSnapshot* snapshot) {
  if (bug == SurvivalBug::kClocksNotRestored) {
    for (uint64_t& clock : snapshot->clocks) clock = snapshot->step;
  }
  if (bug == SurvivalBug::kPublishedNotRestored) {
    for (compress::SavedState& chunk : snapshot->replica) {
      if (chunk.contains("published")) chunk["published"] = chunk["parameters"];
    }
  }
  for (compress::SavedState& chunk : snapshot->replica) {
    if (bug == SurvivalBug::kOwedNotRestored) chunk["parameters"] = chunk["published"];
    if (bug == SurvivalBug::kUpdatesNotCounted) chunk["updates"] = {0, 0};
    if (bug != SurvivalBug::kSlotsNotRestored) continue;
    for (auto& [name, values] : chunk) {
      if (absl::StartsWith(name, "slot-")) std::fill(values.begin(), values.end(), 0.0f);
    }
  }
}

std::vector<uint64_t> HeardMembers(SurvivalBug bug, std::vector<uint64_t> incarnations,
                                   const std::vector<uint64_t>& before) {
  for (size_t rank = 0; rank < incarnations.size(); ++rank) {
    const bool is_removal = incarnations[rank] == 0 && rank < before.size();
    if (is_removal && bug == SurvivalBug::kRemovalNotHeard) incarnations[rank] = before[rank];
  }
  return incarnations;
}

void ApplyAgain(const SurvivalOptions& options, const protocol::Layout& layout, uint32_t shard,
                const protocol::ExchangeReply& answer, std::vector<std::vector<float>>* parameters,
                std::vector<std::vector<float>>* momentum) {
  if (options.bug != SurvivalBug::kResultAppliedTwice || answer.step == 0) return;
  const std::vector<uint32_t>& chunks = layout.bundles[shard][answer.bundle].chunks;
  for (size_t i = 0; i < answer.results.size(); ++i) {
    const protocol::Chunk& chunk = layout.chunks[chunks[i]];
    const auto of_chunk = [&chunk](std::vector<std::vector<float>>* values) {
      return absl::MakeSpan((*values)[chunk.tensor]).subspan(chunk.offset, chunk.count);
    };
    std::vector<float> mean(chunk.count);
    Check(compress::DecodeAddFrames(protocol::FrameBytes(answer.results[i]), absl::MakeSpan(mean))
              .ok(),
          "results decode");
    if (!options.rule.has_value()) {
      ApplyMean(answer.step, mean, of_chunk(parameters), of_chunk(momentum));
      continue;
    }
    for (size_t j = 0; j < mean.size(); ++j) of_chunk(parameters)[j] += mean[j];
  }
}

void AnswerForger::Arrived(uint32_t shard, const protocol::ExchangeRequest& exchange) {
  if (!enabled() || exchange.keys_only) return;
  std::vector<protocol::ExchangeRequest>& arrived =
      arrived_[{exchange.step, shard, exchange.bundle}];
  for (const protocol::ExchangeRequest& before : arrived) {
    if (before.sender.rank == exchange.sender.rank) return;
  }
  arrived.push_back(exchange);
}

std::shared_ptr<const protocol::ExchangeReply> AnswerForger::Answer(
    uint32_t shard, std::shared_ptr<const protocol::ExchangeReply> answer) {
  if (!enabled() || answer->outcome != protocol::Outcome::kResult || answer->step == 0 ||
      answer->record.n == 0) {
    return answer;
  }
  const BundleKey key{answer->step, shard, answer->bundle};
  // Forges the answer only if the same arithmetic without the bug reproduces the shard's results.
  const auto honest = Sum(key, *answer, SurvivalBug::kNone);
  if (honest == nullptr || honest->results != answer->results) return answer;
  return Sum(key, *answer, options_.bug);
}

std::shared_ptr<const protocol::ExchangeReply> AnswerForger::Sum(
    const BundleKey& key, const protocol::ExchangeReply& answer, SurvivalBug bug) const {
  const auto found = arrived_.find(key);
  if (found == arrived_.end()) return nullptr;
  std::vector<protocol::ExchangeRequest> arrived = found->second;
  if (bug != SurvivalBug::kSumInArrivalOrder) {
    std::sort(arrived.begin(), arrived.end(),
              [](const protocol::ExchangeRequest& a, const protocol::ExchangeRequest& b) {
                return a.sender.rank < b.sender.rank;
              });
  }
  const uint32_t divisor =
      bug == SurvivalBug::kDividedByWorldSize ? options_.ranks : answer.record.n;
  auto forged = std::make_shared<protocol::ExchangeReply>(answer);
  forged->results.clear();
  const std::vector<uint32_t>& chunks = layout_.bundles[key.shard][key.bundle].chunks;
  for (size_t i = 0; i < chunks.size(); ++i) {
    std::vector<float> sum(layout_.chunks[chunks[i]].count);
    for (const protocol::ExchangeRequest& exchange : arrived) {
      if (exchange.skip) continue;
      const absl::Status added =
          compress::DecodeAddFrames(protocol::FrameBytes(exchange.frames[i]), absl::MakeSpan(sum));
      if (!added.ok()) return nullptr;
    }
    for (float& x : sum) x /= static_cast<float>(divisor);
    const std::vector<std::byte> frame = DenseFrame(sum);
    forged->results.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
  }
  forged->record.result_checksum = protocol::BundleChecksum(forged->results);
  return forged;
}

}  // namespace sluice
