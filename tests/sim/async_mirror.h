// SPDX-License-Identifier: Apache-2.0
// AsyncMirror models one shard of an asynchronous job independently of the shard's code: the clock
// of every rank, all updates in the order in which the shard applied them, and the resulting
// parameters.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "job/optimizer_spec.h"
#include "protocol/exchange.h"
#include "protocol/layout.h"
#include "server/shard/async_shard.h"

namespace sluice {

class AsyncMirror {
 public:
  struct Options {
    const protocol::Layout* layout = nullptr;  // Not owned.
    uint32_t shard = 0;
    uint32_t ranks = 1;
    uint64_t first_step = 1;
    bool elastic = false;
    job::OptimizerSpec rule;
    bool staleness_aware_lr = false;
  };

  AsyncMirror() = default;
  explicit AsyncMirror(Options options);

  // Returns the mirror of a shard that restores its present state. It knows the newest version
  // only.
  AsyncMirror AtCheckpoint() const;
  // Continues at `first_step` with these holders. If the number of ranks differs, or a rank was not
  // awaited, the ranks begin with that step.
  void Continue(uint64_t first_step, const std::vector<uint64_t>& incarnations);
  // Begins with these holders, or changes them.
  void SetHolders(const std::vector<uint64_t>& incarnations);
  bool IsNew(const protocol::ExchangeRequest& exchange) const;

  // Each check returns a description of the violation, or an empty string.
  //  Call Took() after the shard has handled a valid request.
  std::string Took(const protocol::ExchangeRequest& exchange, const server::AsyncShard& shard);
  //  Call it after a Tick of the shard. Took() calls it.
  std::string CheckState(uint32_t bundle, const server::AsyncShard& shard);
  std::string CheckResult(uint32_t rank, const protocol::ExchangeReply& answer) const;
  // Checks the values that a rank holds as that version of a bundle.
  std::string CheckHeld(uint32_t rank, uint32_t bundle, uint64_t version,
                        const std::vector<float>& values) const;
  // Checks the clocks of a checkpoint after `step`.
  std::string CheckClocks(uint64_t step, const std::vector<uint64_t>& clocks) const;

  uint64_t LeastClock(uint32_t bundle) const;
  uint64_t updates() const;

 private:
  struct Entry {
    uint32_t rank = 0;
    uint64_t step = 0;
    uint32_t checksum = 0;
    uint32_t weight = 1;
    float rate = 0;
    uint64_t staleness = 0;
  };
  struct Version {
    std::vector<float> values;
    uint64_t updates = 0;
  };
  struct RankMirror {
    uint64_t next = 0;  // Has no meaning until the rank has begun.
    bool begun = true;
    bool awaited = true;
  };
  struct BundleMirror {
    bool buffers = false;
    uint32_t first_local = 0;
    std::vector<uint32_t> counts;
    std::vector<RankMirror> ranks;
    uint64_t slowest = 0;  // The lowest next step of the ranks that are awaited, or were last.
    std::vector<Entry> updates;
    std::vector<float> parameters;
    std::vector<std::vector<float>> slots;
    std::map<uint64_t, Version> versions;
    uint64_t oldest = 1;
  };

  static void FindSlowest(BundleMirror* bundle);
  void Begin(const protocol::ExchangeRequest& exchange, BundleMirror* bundle) const;
  void Update(const protocol::ExchangeRequest& exchange, BundleMirror* bundle) const;
  std::string Compare(const BundleMirror& bundle, const server::AsyncShard& shard) const;

  Options options_;
  std::vector<uint64_t> holders_;  // Incarnations, by rank.
  std::vector<BundleMirror> bundles_;
};

}  // namespace sluice
