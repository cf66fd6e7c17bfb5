// SPDX-License-Identifier: Apache-2.0
#include "follow/rpc/update_parts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "follow/chunk_coding.h"
#include "follow/patch.h"

namespace sluice::follow {
namespace {

// Small, so that a slow link sends a part within every time limit.
constexpr size_t kPartBytes = 1 << 18;

}  // namespace

uint64_t LargestUpdate(const ModelParts& parts, size_t shard, compress::ElementType type) {
  uint64_t elements = 0;
  for (const TensorPiece& piece : parts.shards[shard]) elements += piece.count;
  const uint64_t chunks = elements / kChunkElements + 1;
  return kPatchHeaderSize + kLayoutBytesMax + chunks * kPartHeaderSize + elements * BytesOf(type);
}

size_t WritePart(const WeightsUpdate& update, size_t at, v1::FollowReply* message) {
  message->Clear();
  message->set_term(update.result.version.term);
  if (at == 0) message->set_update_bytes(update.bytes.size());
  const size_t count = std::min(kPartBytes, update.bytes.size() - at);
  message->set_part(update.bytes.data() + at, count);
  return at + count;
}

absl::Status UpdateParts::Add(const v1::FollowReply& message) {
  if (update_.empty()) {
    expected_ = message.update_bytes();
    if (expected_ == 0 || expected_ > bytes_max_) {
      return absl::InvalidArgumentError(absl::StrCat("an update of ", expected_, " bytes; at most ",
                                                     bytes_max_, " are possible"));
    }
    update_.reserve(expected_);
  }
  if (message.part().empty() || message.part().size() > expected_ - update_.size()) {
    return absl::InvalidArgumentError("an update has a part of a wrong size");
  }
  const auto* const first = reinterpret_cast<const std::byte*>(message.part().data());
  update_.insert(update_.end(), first, first + message.part().size());
  return absl::OkStatus();
}

}  // namespace sluice::follow
