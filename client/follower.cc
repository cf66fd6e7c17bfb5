// SPDX-License-Identifier: Apache-2.0
#include "sluice/follower.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/log.h"
#include "client/conversions.h"
#include "client/transport.h"
#include "compress/element_type.h"
#include "follow/rpc/follower.h"
#include "follow/tensor_layout.h"

namespace sluice::client {
namespace {

// Divides the weights of a version, which follow each other in the order of the layout.
std::vector<FollowedTensor> Divide(const follow::TensorLayout& layout, ElementType type,
                                   absl::Span<const std::byte> weights) {
  const size_t width = BytesOf(static_cast<compress::ElementType>(type));
  std::vector<FollowedTensor> tensors;
  tensors.reserve(layout.size());
  for (const follow::NamedShape& entry : layout) {
    size_t bytes = width;
    for (const uint64_t dimension : entry.shape) bytes *= dimension;
    tensors.push_back({.name = entry.name,
                       .shape = {entry.shape.begin(), entry.shape.end()},
                       .data = weights.data(),
                       .bytes = bytes});
    weights.remove_prefix(bytes);
  }
  return tensors;
}

}  // namespace

struct Follower::State {
  State(ElementType element_type, follow::Follower::Options options, Logger logger)
      : type(element_type), follower(std::move(options), &clock, std::move(logger)) {}

  const ElementType type;
  const SteadyClock clock;
  follow::Follower follower;
  bool connected = false;
};

Result<std::unique_ptr<Follower>> Follower::Create(const FollowerOptions& options) {
  if (!(options.patience_seconds >= 0)) {
    return FromStatus(absl::InvalidArgumentError(absl::StrCat(
        "patience_seconds is ", options.patience_seconds, "; it must not be negative")));
  }
  const Logger logger = ToLogger("follower", options.log);
  absl::StatusOr<std::shared_ptr<const net::Transport>> transport =
      OpenTransport({.tls_cert = options.tls_cert,
                     .tls_key = options.tls_key,
                     .tls_ca = options.tls_ca,
                     .token_file = options.token_file},
                    logger);
  if (!transport.ok()) return FromStatus(transport.status());
  if (const std::string warning = (*transport)->WarningFor(options.address); !warning.empty()) {
    logger.Warning(warning);
  }
  auto state = std::make_unique<State>(
      options.type,
      follow::Follower::Options{.address = options.address,
                                .type = static_cast<compress::ElementType>(options.type),
                                .transport = *std::move(transport),
                                .patience = absl::Seconds(options.patience_seconds)},
      logger);
  return std::unique_ptr<Follower>(new Follower(std::move(state)));
}

Follower::Follower(std::unique_ptr<State> state) : state_(std::move(state)) {}
Follower::~Follower() = default;

Result<std::optional<FollowedVersion>> Follower::Next() {
  follow::Follower& follower = state_->follower;
  if (!state_->connected) {
    if (absl::Status connected = follower.Connect(); !connected.ok()) return FromStatus(connected);
    state_->connected = true;
  }
  const absl::StatusOr<std::optional<follow::Follower::Version>> next = follower.Next();
  if (!next.ok()) return FromStatus(next.status());
  if (!next->has_value()) return std::optional<FollowedVersion>();
  const follow::Follower::Version& version = **next;
  return std::optional<FollowedVersion>(
      {.step = version.version.step,
       .term = version.version.term,
       .changed = version.applied.changed,
       .received_bytes = version.applied.bytes,
       .tensors = Divide(follower.model(), state_->type, version.weights)});
}

void Follower::Interrupt() { state_->follower.Cancel(); }

}  // namespace sluice::client
