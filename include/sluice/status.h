// SPDX-License-Identifier: Apache-2.0
// Status and Result: the outcome of a call to the client library. The library throws no exceptions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace sluice::client {

// The codes have the same numbers as in gRPC.
enum class StatusCode : uint8_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// The outcome of a call. The message of an error names the process, the place, the value, and the
// remedy.
struct Status {
  StatusCode code = StatusCode::kOk;
  std::string message{};
  // True if the job was rolled back to a checkpoint. The session has ended; a new session continues
  // from the checkpoint.
  bool rollback = false;

  bool ok() const { return code == StatusCode::kOk; }
};

// A value, or the error that explains its absence.
template <typename T>
class Result {
 public:
  // These constructors are implicit, so that a function can return a value or a Status.
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // Requires ok().
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace sluice::client
