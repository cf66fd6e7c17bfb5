// SPDX-License-Identifier: Apache-2.0
#include "protocol/stage_times.h"

namespace sluice::protocol {
namespace {

// The innermost span of each thread. Nested code can thus start a span without being passed the
// outer one, for example a core inside the server, or a write inside a read.
thread_local StageSpan* innermost = nullptr;

}  // namespace

absl::string_view ToString(Stage stage) {
  switch (stage) {
    case Stage::kReceive:
      return "receive";
    case Stage::kSum:
      return "sum";
    case Stage::kEncode:
      return "encode";
    case Stage::kSend:
      return "send";
    case Stage::kApply:
      return "apply";
  }
  return "";
}

StageSeconds StageTimes::Seconds() const {
  StageSeconds seconds{};
  for (size_t stage = 0; stage < kStages; ++stage) {
    seconds[stage] = 1e-9 * static_cast<double>(ns_[stage].load(std::memory_order_relaxed));
  }
  return seconds;
}

void StageTimes::Add(Stage stage, int64_t ns) {
  ns_[static_cast<size_t>(stage)].fetch_add(ns, std::memory_order_relaxed);
}

StageSpan::StageSpan(StageTimes* times, Stage stage)
    : times_(times), outer_(innermost), stage_(stage) {
  if (times_ == nullptr) return;
  innermost = this;
  begin_ = times_->read_clock_();
}

StageSpan::~StageSpan() {
  if (times_ == nullptr) return;
  Close(times_->read_clock_());
  innermost = outer_;
}

void StageSpan::Next(Stage stage) {
  if (times_ == nullptr) return;
  const int64_t now = times_->read_clock_();
  Close(now);
  begin_ = now;
  inside_ = 0;
  stage_ = stage;
}

void StageSpan::Close(int64_t now) {
  const int64_t taken = now - begin_;
  times_->Add(stage_, taken - inside_);
  if (outer_ != nullptr) outer_->inside_ += taken;
}

}  // namespace sluice::protocol
