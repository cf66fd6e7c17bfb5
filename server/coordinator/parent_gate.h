// SPDX-License-Identifier: Apache-2.0
// ParentGate: the state of a rack's term towards the parent job. The rack asks the parent job to
// start the term, and tells it when all workers have finished. Pure; not thread-safe.
#pragma once

namespace sluice::server {

class ParentGate {
 public:
  // Begins a term, which the parent job has not been asked to start.
  void ResetForTerm() { state_ = State::kClosed; }
  // Returns true the first time. The caller must then ask the parent job to start the term.
  bool Ask() {
    if (state_ != State::kClosed) return false;
    state_ = State::kAsked;
    return true;
  }
  // True from Ask until Open.
  bool awaits_start() const { return state_ == State::kAsked; }
  bool asked() const { return state_ != State::kClosed; }
  // The parent job has started the term.
  void Open() { state_ = State::kOpen; }
  bool is_open() const { return state_ == State::kOpen || state_ == State::kLeaving; }
  // Returns true the first time. The caller must then tell the parent job that the rack has
  // finished.
  bool Leave() {
    if (state_ == State::kLeaving) return false;
    state_ = State::kLeaving;
    return true;
  }
  bool is_leaving() const { return state_ == State::kLeaving; }

 private:
  enum class State { kClosed, kAsked, kOpen, kLeaving };
  State state_ = State::kClosed;
};

}  // namespace sluice::server
