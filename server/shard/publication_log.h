// SPDX-License-Identifier: Apache-2.0
// PublicationLog: keeps the newest publications of one bundle. A rank that knows one of the logged
// versions gets only the publications that it lacks. Beyond a limit of bytes, the log evicts the
// oldest publications. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace sluice::server {

class PublicationLog {
 public:
  // The publications that lead from one version to the newest one.
  struct Steps {
    uint64_t count = 0;
    std::vector<std::string> frames{};  // By chunk: the frames of all publications, in order.

    friend bool operator==(const Steps&, const Steps&) = default;
  };

  // Keeps at most `bytes_max` bytes of frames.
  explicit PublicationLog(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Adds the publication that leads from version `from` to the next one. `frames` has one entry per
  // chunk. Publications must come in order. A publication that exceeds the limit alone is not kept.
  void Add(uint64_t from, std::vector<std::string> frames);
  // Returns nothing if the log has no publication that begins at this version.
  std::optional<Steps> Since(uint64_t version) const;

  uint64_t bytes() const { return bytes_; }
  uint64_t bytes_max() const { return bytes_max_; }
  size_t size() const { return publications_.size(); }

 private:
  struct Publication {
    uint64_t from = 0;
    uint64_t bytes = 0;
    std::vector<std::string> frames;  // By chunk.
  };

  const uint64_t bytes_max_;
  uint64_t bytes_ = 0;
  std::deque<Publication> publications_;
};

}  // namespace sluice::server
