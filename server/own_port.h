// OwnPort: a thread that asks every few seconds whether the process's own gRPC port answers, for
// /livez. PortHealth: when it counts as deaf; pure.
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
  // As PortProbe::Ask returned it. What could not be asked says nothing.
  void Note(const absl::Status& answer);
  // Why the port counts as deaf: twice running nothing came. Empty: it does not.
  std::string trouble() const;

 private:
  int failures_ = 0;  // Running.
  std::string last_;
};

class OwnPort {
 public:
  struct Options {
    absl::Duration pause = absl::Seconds(5);     // Between an answer and the next question.
    absl::Duration patience = absl::Seconds(5);  // For one answer.
  };
  explicit OwnPort(net::PortProbe probe) : OwnPort(std::move(probe), Options()) {}
  OwnPort(net::PortProbe probe, const Options& options);
  ~OwnPort();

  // Thread-safe. For /livez, which names the port; empty: it answers.
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
