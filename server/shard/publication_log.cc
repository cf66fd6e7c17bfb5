// SPDX-License-Identifier: Apache-2.0
#include "server/shard/publication_log.h"

#include <algorithm>
#include <utility>

#include "protocol/exchange.h"

namespace sluice::server {

void PublicationLog::Add(uint64_t from, std::vector<std::string> frames) {
  const uint64_t bytes = protocol::TotalBytes(frames);
  bytes_ += bytes;
  publications_.push_back({.from = from, .bytes = bytes, .frames = std::move(frames)});
  while (bytes_ > bytes_max_) {
    bytes_ -= publications_.front().bytes;
    publications_.pop_front();
  }
}

std::optional<PublicationLog::Steps> PublicationLog::Since(uint64_t version) const {
  const auto first =
      std::find_if(publications_.begin(), publications_.end(),
                   [version](const Publication& each) { return each.from == version; });
  if (first == publications_.end()) return std::nullopt;
  Steps steps;
  steps.count = static_cast<uint64_t>(publications_.end() - first);
  steps.frames.resize(first->frames.size());
  for (auto publication = first; publication != publications_.end(); ++publication) {
    for (size_t i = 0; i < steps.frames.size(); ++i) steps.frames[i] += publication->frames[i];
  }
  return steps;
}

}  // namespace sluice::server
