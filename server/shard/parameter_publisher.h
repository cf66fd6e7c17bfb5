// SPDX-License-Identifier: Apache-2.0
// ParameterPublisher: publishes the parameters of a shard whose ranks do not wait for each other.
// It encodes what the workers lack, numbers the versions of each bundle, and adds to each RESULT
// what leads from the rank's version to the newest one. Pure; not thread-safe.
//
// The version of a bundle is the number of its published updates plus one. Version 1 is the
// parameters of step 0; 0 stands for an unknown version. Bundles of buffers keep version 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compress/codec.h"
#include "compress/compressor.h"
#include "protocol/exchange.h"
#include "server/shard/publication_log.h"
#include "server/shard/shard.h"
#include "server/shard/shard_layout.h"
#include "server/shard/shard_threads.h"

namespace sluice::server {

class ParameterPublisher {
 public:
  // All arguments must outlive the publisher. The publisher changes the bundles' versions and the
  // published parameters. The layout must have an update rule.
  ParameterPublisher(const ShardOptions* options, ShardLayout* layout, ShardThreads* threads);

  // Sets the initial parameters or buffers of a bundle from ParameterRank's contribution to step 0.
  void Begin(const protocol::ExchangeRequest& exchange);
  bool begun(uint32_t bundle) const { return states_[bundle].begun; }
  // Returns that contribution, as results record it.
  const protocol::Included& parameters(uint32_t bundle) const { return states_[bundle].parameters; }
  // Forgets the initial buffers of a bundle once all ranks have them.
  void DropBuffers(uint32_t bundle) { states_[bundle].buffers = {}; }

  uint64_t version(uint32_t bundle) const { return layout_.bundles[bundle].version; }
  // Returns the number of updates to the bundle, published or not.
  uint64_t Updates(uint32_t bundle) const;
  uint64_t Unpublished(uint32_t bundle) const { return Updates(bundle) + 1 - version(bundle); }
  // Returns the version that a contribution is based on. An unknown version counts as the one with
  // which this process began.
  uint64_t BaseOf(const protocol::ExchangeRequest& exchange) const;

  // Publishes all updates to the bundle. Fails with INVALID_ARGUMENT and publishes nothing if the
  // parameters are not finite.
  absl::Status Publish(uint32_t bundle);
  // Adds the frames that lead from the base version of the answer to the newest version. If they
  // are not kept, adds the parameters themselves.
  void Bring(protocol::ExchangeReply* answer);
  // Moves the downlink's thresholds, as lockstep shards do after each step.
  void MoveThresholds();
  // Returns the mean number of publications in the results of trained bundles since the last call.
  double TakePublicationsPerResult();

  compress::Compressor* downlink() { return &downlink_; }
  // Fails with INVALID_ARGUMENT unless the versions match the updates of the restored parameters.
  absl::Status CheckVersions(const std::vector<uint64_t>& versions) const;
  // Continues from restored parameters with these versions.
  void Resume(const std::vector<uint64_t>& versions);
  // Sets the counters of publications, logs and held buffers.
  void CountIn(ShardStats* stats) const;

 private:
  struct State {
    explicit State(uint64_t log_bytes) : log(log_bytes) {}

    bool begun = false;             // The initial parameters have arrived.
    protocol::Included parameters;  // As ParameterRank sent them.
    uint64_t oldest = 1;            // Version that this process began with.
    bool published = false;         // The bundle was published since the thresholds last moved.
    PublicationLog log;
    std::vector<std::string> buffers{};  // Initial buffers, until all ranks have them.
  };

  std::vector<std::string> ExactFrames(uint32_t bundle) const;

  const ShardOptions& options_;
  ShardLayout& layout_;
  ShardThreads* const threads_;
  compress::Compressor downlink_;
  const std::unique_ptr<compress::Codec> exact_;
  std::vector<State> states_;                   // By bundle.
  std::vector<std::vector<std::byte>> frames_;  // Scratch.
  std::vector<std::vector<float>> owed_;        // Scratch, by lane.
  uint64_t publications_ = 0;
  uint64_t brought_ = 0;     // Number of publications in results since the last measurement.
  uint64_t brought_in_ = 0;  // Number of results of trained bundles since the last measurement.
};

}  // namespace sluice::server
