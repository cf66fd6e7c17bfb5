// AsyncMirror: what one shard of a job whose workers do not wait for each other must be like, kept
// apart from it: every rank's place, all updates in the order in which they were made, and the
// parameters that they add up to.
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
    protocol::TensorTable table;
    protocol::Layout layout;
    uint32_t shard = 0;
    uint32_t ranks = 1;
    job::OptimizerSpec rule;
    bool staleness_aware_lr = false;
  };

  AsyncMirror() = default;
  explicit AsyncMirror(Options options);

  // The shard begins anew from what this was copied with. Nobody's version is known.
  void BeginTerm();
  bool IsNew(const protocol::Exchange& exchange) const;

  // Each says what is wrong; empty: nothing.
  // After the shard has handled a valid request.
  std::string Took(const protocol::Exchange& exchange, const server::AsyncShard& shard);
  std::string CheckResult(uint32_t rank, const protocol::ExchangeAnswer& answer) const;
  // What a rank holds as that version of a bundle.
  std::string CheckHeld(uint32_t rank, uint32_t bundle, uint64_t version,
                        const std::vector<float>& values) const;
  std::string CheckClocks(const std::vector<uint64_t>& clocks) const;

  uint64_t LeastClock(uint32_t bundle) const;
  uint64_t updates() const;

 private:
  struct Entry {
    uint32_t rank = 0;
    uint64_t step = 0;
    uint32_t checksum = 0;
    float rate = 0;
    uint64_t staleness = 0;
  };
  struct Version {
    std::vector<float> values;
    uint64_t updates = 0;
  };
  struct BundleMirror {
    bool buffers = false;
    uint32_t first_local = 0;
    std::vector<uint32_t> counts;
    std::vector<uint64_t> next;  // By rank.
    std::vector<Entry> updates;
    std::vector<float> parameters;
    std::vector<std::vector<float>> slots;
    std::map<uint64_t, Version> versions;
    uint64_t oldest = 1;
  };

  void Begin(const protocol::Exchange& exchange, BundleMirror* bundle) const;
  void Update(const protocol::Exchange& exchange, BundleMirror* bundle) const;
  std::string Compare(const BundleMirror& bundle, const server::AsyncShard& shard) const;

  Options options_;
  std::vector<BundleMirror> bundles_;
};

}  // namespace sluice
