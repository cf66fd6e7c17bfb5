// SPDX-License-Identifier: Apache-2.0
// ClientPatience: ends calls whose clients block a thread too long, because they send no message or
// accept none. Runs a thread. Thread-safe.
#pragma once

#include <grpcpp/server_context.h>

#include <map>
#include <thread>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace sluice::server {

class ClientPatience {
 public:
  ClientPatience();
  ~ClientPatience();

  // Exists while a call waits for its client. After `patience` the call ends with ABORTED, and the
  // read or write returns.
  class Waiting {
   public:
    Waiting(ClientPatience* owner, grpc::ServerContext* context, absl::Duration patience);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    ClientPatience* const owner_;
    grpc::ServerContext* const context_;
  };

 private:
  struct Limit {
    absl::Time until;
    absl::Duration patience;
  };

  void Run();

  const SteadyClock clock_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<grpc::ServerContext*, Limit> waiting_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sluice::server
