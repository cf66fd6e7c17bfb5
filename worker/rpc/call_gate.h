// CallGate: ends, from another thread, the calls that a thread waits for, and its pauses between
// them. Thread-safe.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <set>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace sluice::worker {

class CallGate {
 public:
  explicit CallGate(const Clock* clock) : clock_(clock) {}

  // Ends what is under way, and lets nothing begin from here on.
  void Close();
  // Before the call and after it, with its context. False: the gate is closed.
  bool Begin(grpc::ClientContext* context);
  bool End(grpc::ClientContext* context);
  // False if it was closed before or meanwhile.
  bool SleepFor(absl::Duration duration);
  // The same, while `channel` connects: gRPC makes a connection only where somebody waits for it.
  // Between calls that fail at once nobody does, and the many exchanges of a TLS handshake would
  // never come to their end.
  bool ConnectFor(absl::Duration duration, grpc::Channel* channel);

 private:
  const Clock* const clock_;
  Mutex mutex_;
  CondVar closed_changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> under_way_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::worker
