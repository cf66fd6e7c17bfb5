// SPDX-License-Identifier: Apache-2.0
#include "follow/rpc/update_receiver.h"

#include <algorithm>
#include <utility>

namespace sluice::follow {
namespace {

constexpr absl::Duration kPauseMin = absl::Milliseconds(100);
constexpr absl::Duration kPauseMax = absl::Seconds(2);

}  // namespace

UpdateReceiver::UpdateReceiver(Options options, Callbacks callbacks, const Clock* clock)
    : options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      clock_(clock),
      client_(options_.transport, options_.address, clock_),
      thread_([this] { Run(); }) {}

UpdateReceiver::~UpdateReceiver() {
  Stop();
  thread_.join();
}

void UpdateReceiver::Stop() { client_.Cancel(); }

void UpdateReceiver::Run() {
  absl::Time heard = clock_->Now();
  absl::Duration pause = kPauseMin;
  do {
    FollowQuery query = options_.query;
    query.have = callbacks_.have();
    const absl::Time began = clock_->Now();
    const absl::Status status =
        client_.Receive(query, [&](uint32_t term, std::vector<std::byte> update) {
          heard = clock_->Now();
          pause = kPauseMin;
          return callbacks_.take(term, std::move(update));
        });
    const absl::Time now = clock_->Now();
    // A call that lasted shows that the server answers, even if it had nothing to send.
    if (now - began > kPauseMax) heard = now;
    const bool may_retry = absl::IsUnavailable(status) || absl::IsCancelled(status);
    if (!may_retry || now - heard > options_.patience) {
      if (client_.Pause(absl::ZeroDuration())) callbacks_.ended(status);
      return;
    }
    pause = std::min(2 * pause, kPauseMax);
  } while (client_.Pause(pause));
}

}  // namespace sluice::follow
