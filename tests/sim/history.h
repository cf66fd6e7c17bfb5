// History: what every rank sent first and was told at last, and whether that keeps the promises.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "compress/aggregator.h"
#include "compress/compressor.h"
#include "job/exchange.h"
#include "job/layout.h"
#include "server/core/shard.h"
#include "tests/sim/cluster.h"
#include "worker/core/pipeline.h"

namespace sluice {

struct BundleKey {
  uint64_t step = 0;
  uint32_t shard = 0;
  uint32_t bundle = 0;
  friend auto operator<=>(const BundleKey&, const BundleKey&) = default;
};

struct SentBundle {
  bool skip = false;
  std::vector<std::string> frames;
};

// One rank's view of a finished step.
struct SeenStep {
  std::map<BundleKey, ClosingRecord> records;
  std::vector<std::vector<float>> means;  // By tensor.
};

class History {
 public:
  History(const ClusterOptions& options, const TensorTable& table, const Layout& layout);

  // False: this rank sent the bundle before.
  bool Sent(uint32_t rank, const BundleKey& key, const Exchange& exchange);
  void Finished(uint32_t rank, uint64_t step, SeenStep seen) {
    seen_[{step, rank}] = std::move(seen);
  }

  // Recomputes every step from what was sent and compares.
  void CheckResults(std::vector<std::string>* violations);
  // After CheckResults. `residual` of the chunk at that rank, or at its shard.
  void CheckUplink(uint32_t rank, uint32_t chunk, absl::Span<const float> residual,
                   std::vector<std::string>* violations) const;
  void CheckDownlink(uint32_t chunk, absl::Span<const float> residual,
                     std::vector<std::string>* violations) const;
  uint32_t results_hash() const { return results_hash_; }

 private:
  struct Totals {                // Of one chunk, per element.
    std::vector<double> wanted;  // Gradients, or means.
    std::vector<double> got;     // What was decoded from frames.
    double magnitude = 0;
  };

  const std::vector<std::vector<float>>& Values(uint32_t rank, uint64_t step) const;
  void CheckStep(uint64_t step, std::vector<std::string>* violations);
  // The result frames that the bundle must have; its closing record in `*record`.
  std::vector<std::string> ExpectedResult(const BundleKey& key, ClosingRecord* record);
  void AddUplink(const BundleKey& key, uint32_t rank, const SentBundle& sent);
  void CheckPlainSum(uint64_t step, const std::vector<std::vector<float>>& means,
                     std::vector<std::string>* violations) const;
  void CheckBalance(const std::string& whose, const Totals& totals,
                    absl::Span<const float> residual, std::vector<std::string>* violations) const;

  const ClusterOptions options_;
  const TensorTable table_;
  const Layout layout_;
  std::vector<std::unique_ptr<Aggregator>> aggregators_;  // By chunk.
  std::vector<Compressor> downlink_;                      // By shard: thresholds are a shard's own.
  std::map<BundleKey, std::map<uint32_t, SentBundle>> sent_;       // By rank.
  std::map<std::pair<uint64_t, uint32_t>, SeenStep> seen_;         // By (step, rank).
  std::map<std::pair<uint32_t, uint32_t>, Totals> uplink_totals_;  // By (rank, chunk).
  std::map<uint32_t, Totals> downlink_totals_;                     // By chunk.
  uint32_t results_hash_ = 0;
  // By (rank, step): what SimValues gives.
  mutable std::map<std::pair<uint32_t, uint64_t>, std::vector<std::vector<float>>> values_;
};

}  // namespace sluice
