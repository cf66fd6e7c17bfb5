// SPDX-License-Identifier: Apache-2.0
// UpdateReceiver: receives one shard's updates on a thread of its own. It repeats calls that break,
// and goes on with the update after the last one that it received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "follow/rpc/weights_client.h"
#include "follow/weights_version.h"
#include "net/grpc/transport.h"

namespace sluice::follow {

class UpdateReceiver {
 public:
  struct Options {
    std::shared_ptr<const net::Transport> transport;
    std::string address;
    FollowQuery query;  // `have` is set before each call.
    // How long to wait for a server that does not answer.
    absl::Duration patience;
  };
  // All of them are called on the receiver's thread.
  struct Callbacks {
    std::function<std::optional<WeightsState>()> have;
    WeightsClient::Receiver take;
    // Called once, at the end: OK if the job has ended and all updates came. Otherwise the errors
    // of WeightsClient::Receive. Not called if Stop was called before.
    std::function<void(const absl::Status&)> ended;
  };

  UpdateReceiver(Options options, Callbacks callbacks, const Clock* clock);
  // Stops and joins the thread.
  ~UpdateReceiver();
  // Makes the thread end soon. Thread-safe.
  void Stop();

 private:
  void Run();

  const Options options_;
  const Callbacks callbacks_;
  const Clock* const clock_;
  WeightsClient client_;
  std::thread thread_;
};

}  // namespace sluice::follow
