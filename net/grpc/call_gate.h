// SPDX-License-Identifier: Apache-2.0
// CallGate: lets one thread end the calls and sleeps of other threads. Thread-safe.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <set>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace sluice::net {

class CallGate {
 public:
  explicit CallGate(const Clock* clock) : clock_(clock) {}

  // Cancels the calls in progress and prevents later ones.
  void Close();
  // Call Begin before a call and End after it, with the call's context. They return false if the
  // gate is closed.
  bool Begin(grpc::ClientContext* context);
  bool End(grpc::ClientContext* context);
  // Returns false if the gate is closed before or during the sleep.
  bool SleepFor(absl::Duration duration);
  // Like SleepFor, but keeps `channel` connecting. gRPC makes progress on a connection only while a
  // caller waits for the channel. If calls fail at once, no caller waits between them, and the many
  // round trips of a TLS handshake would never finish.
  bool ConnectFor(absl::Duration duration, grpc::Channel* channel);

 private:
  const Clock* const clock_;
  Mutex mutex_;
  CondVar closed_changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> under_way_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::net
