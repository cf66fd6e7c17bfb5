// SPDX-License-Identifier: Apache-2.0
#include "server/own_port.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::server {
namespace {

constexpr int kFailuresMax = 2;  // A busy machine may miss a single probe.

}  // namespace

void PortHealth::Note(const absl::Status& answer) {
  if (absl::IsUnavailable(answer)) {
    ++failures_;
    last_ = std::string(answer.message());
  } else if (answer.ok()) {
    failures_ = 0;
  }
}

std::string PortHealth::trouble() const {
  if (failures_ < kFailuresMax) return "";
  return absl::StrCat("it did not answer ", failures_, " times in a row; the last time it ", last_);
}

OwnPort::OwnPort(net::PortProbe probe, const Options& options)
    : probe_(std::move(probe)), options_(options), thread_([this] { Run(); }) {}

OwnPort::~OwnPort() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stopping_changed_.SignalAll();
  }
  thread_.join();
}

std::string OwnPort::trouble() const {
  MutexLock lock(&mutex_);
  const std::string trouble = health_.trouble();
  return trouble.empty() ? "" : absl::StrCat("the gRPC port ", probe_.name(), ": ", trouble);
}

void OwnPort::Run() {
  while (!stopping_) {
    const absl::Status answer = probe_.Ask(options_.patience, stopping_);
    MutexLock lock(&mutex_);
    health_.Note(answer);
    if (!stopping_) stopping_changed_.WaitFor(&mutex_, options_.pause);
  }
}

}  // namespace sluice::server
