// SPDX-License-Identifier: Apache-2.0
// OwnPort: asks every few seconds, on a separate thread, whether the process's gRPC port answers.
// The result is for /livez. PortHealth, which is pure, decides when the port counts as
// unresponsive.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "net/grpc/port_probe.h"

namespace sluice::server {

class PortHealth {
 public:
  // Takes the result of PortProbe::Ask. Has no effect if the error means that the probe itself
  // failed.
  void Note(const absl::Status& answer);
  // If two probes in a row got no answer, the port counts as unresponsive. Returns the reason in
  // that case and an empty string otherwise.
  std::string trouble() const;

 private:
  int failures_ = 0;  // Consecutive failures.
  std::string last_;
};

class OwnPort {
 public:
  struct Options {
    absl::Duration pause = absl::Seconds(5);     // Between an answer and the next probe.
    absl::Duration patience = absl::Seconds(5);  // Timeout for one answer.
  };
  explicit OwnPort(net::PortProbe probe) : OwnPort(std::move(probe), Options()) {}
  OwnPort(net::PortProbe probe, const Options& options);
  ~OwnPort();

  // Returns the error for /livez, which names the port, or "" if the port answers. Thread-safe.
  std::string trouble() const;

 private:
  void Run();

  const net::PortProbe probe_;
  const Options options_;
  std::atomic<bool> stopping_ = false;
  mutable Mutex mutex_;
  CondVar stopping_changed_;
  PortHealth health_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sluice::server
