// ContributionGuard: finds contributions that differ from those of the other ranks, because a rank
// is broken or hostile, and decides how much of them counts. Pure. Not thread-safe.
//
// When a bundle closes, the guard decodes one chunk of all its contributions, chosen at random from
// the seed, and compares them. A norm per contribution above `limit` times the median is an
// outlier. Then, and for kWatchSteps steps after that, the guard measures whole bundles and scales
// or leaves out every contribution whose norm is an outlier. The median norm as the bound follows
// the peers' practice for updates from the internet (SparseLoCo, arXiv:2508.15706, its
// implementation).
//
// A contribution whose sign is flipped has a normal norm. So the guard also takes the mean, over the
// last kWindow steps, of the cosine between a rank's contribution and the sum of the others', each
// scaled to norm 1. A rank opposes the others if its mean is negative by more than four standard
// errors, while the median rank's is positive by as much. This needs four ranks, because one of
// three cancels another. A rank's opposition ends when its mean is positive.
//
// Equal contributions lead to equal decisions, whatever the order in which bundles close: what a
// step shows about opposition takes effect in the next step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/types/span.h"
#include "job/guard_spec.h"
#include "server/shard/notice.h"
#include "server/shard/open_bundle.h"
#include "server/shard/rank_agreement.h"

namespace sluice::server {

class ContributionGuard {
 public:
  // With fewer contributions to a bundle than this, no majority exists, so nothing is judged.
  static constexpr size_t kContributionsMin = 3;
  static constexpr uint64_t kWatchSteps = 100;
  static constexpr size_t kWindow = 12;
  // A rank can be found to oppose the others after this many steps.
  static constexpr size_t kStepsMin = 8;

  ContributionGuard(const job::GuardSpec& spec, uint64_t seed, size_t ranks)
      : spec_(spec), seed_(seed), figures_(ranks), courses_(ranks) {}

  // Returns the factor of each contribution: 1, less for an outlier that is clipped, or 0 for a
  // contribution that is left out. Empty if all are 1. `counts` holds the number of elements of
  // each chunk. The frames must be valid and must decode alone.
  std::vector<float> Judge(uint64_t step, uint32_t bundle, absl::Span<const uint32_t> counts,
                           absl::Span<const HeldContribution> contributions);
  // Ends a step in which all bundles have closed. Returns what a person should know.
  std::vector<Notice> EndStep(uint64_t step);

  // By rank.
  const std::vector<RankAgreement>& figures() const { return figures_; }

 private:
  // What one bundle of the open step shows about one contribution.
  struct Sample {
    uint32_t bundle = 0;
    uint32_t rank = 0;
    double norm_ratio = 0;  // Norm per contribution, divided by the median.
    double cosine = 0;
  };
  // What the guard remembers of a rank.
  struct Course {
    std::deque<double> cosines;  // Of the last kWindow steps.
    double error = 0;            // Standard error of their mean.
    uint64_t watched_until = 0;  // Step; 0 if the rank had no outlier.
    double worst = 0;            // The largest norm ratio of the open step's outliers.
    bool told = false;           // A notice has named the rank's outliers.
  };

  // Decodes a chunk of one contribution into chunk_ and returns its norm per contribution.
  double Decode(size_t chunk, uint32_t count, const HeldContribution& from);
  void Probe(uint32_t bundle, size_t chunk, uint32_t count,
             absl::Span<const HeldContribution> contributions, std::vector<double>* norms);
  void AddCosines(size_t chunk, uint32_t count, absl::Span<const HeldContribution> contributions,
                  absl::Span<const double> norms, absl::Span<Sample> samples);
  std::vector<double> WholeNorms(absl::Span<const uint32_t> counts,
                                 absl::Span<const HeldContribution> contributions);
  bool HasOutlier(absl::Span<const double> norms) const;
  void JudgeNorms(uint64_t step, absl::Span<const HeldContribution> contributions,
                  absl::Span<const double> norms, std::vector<float>* factors);
  void JudgeDirections(absl::Span<const HeldContribution> contributions, std::vector<float>* factors);
  void Follow(uint32_t rank, double norm_ratio, double cosine);
  void UpdateOpposition(uint64_t step, std::vector<Notice>* out);

  const job::GuardSpec spec_;
  const uint64_t seed_;
  std::vector<RankAgreement> figures_;
  std::vector<Course> courses_;  // By rank.
  std::vector<Sample> samples_;  // Of the open step.
  uint64_t watching_until_ = 0;  // The last step in which whole bundles are measured.
  std::vector<float> chunk_;     // Scratch: a decoded chunk.
  std::vector<float> total_;     // Scratch: the sum of scaled chunks.
};

}  // namespace sluice::server
