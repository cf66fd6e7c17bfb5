// SPDX-License-Identifier: Apache-2.0
// Follower: reads the parameters of a running job, which has a section `followers`. The job sends
// differences between versions of the parameters, and the Follower has each version bit for bit as
// the job has it, in the type that it asked for. A program that follows is not part of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/session.h"
#include "sluice/status.h"

namespace sluice::client {

struct FollowerOptions {
  // HOST:PORT of the job's shard 0, or of a relay for followers.
  std::string address{};
  // The job must offer this type (followers.types). Values are rounded to it, ties to even.
  ElementType type = ElementType::kBfloat16;
  double patience_seconds = 60;  // How long to wait for a server that does not answer.
  std::string token_file{};      // Paths of files; each may be empty (docs/security.md).
  std::string tls_cert{};
  std::string tls_key{};
  std::string tls_ca{};
  LogSink log{};  // If it is not set, log lines go to stderr.
};

// A trained tensor of a version.
struct FollowedTensor {
  std::string name{};
  std::vector<int64_t> shape{};
  const void* data = nullptr;  // In row-major order, in the follower's type.
  size_t bytes = 0;
};

// A complete version of the model. Two versions are equal if their term and step are equal.
struct FollowedVersion {
  uint64_t step = 0;  // The state after this exchange of the job.
  // Grows when the job continues from a checkpoint. Steps may then repeat with other values.
  uint32_t term = 0;
  // Elements that the received differences replace. An element counts once for each difference
  // that replaces it.
  uint64_t changed = 0;
  uint64_t received_bytes = 0;  // Bytes of these differences.
  // In the order of the job. The data is valid until the next call of Next, or until the Follower
  // is destroyed.
  std::vector<FollowedTensor> tensors{};
};

// Apart from Interrupt, only one thread at a time may use a Follower.
class [[gnu::visibility("default")]] Follower {
 public:
  // Opens no connection. Fails with INVALID_ARGUMENT if a file is unusable.
  static Result<std::unique_ptr<Follower>> Create(const FollowerOptions& options);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // Waits for the next complete version. A program that takes long gets a later version next, not
  // each one. The first call also waits for the job. No value means that the job has ended and that
  // the last version was returned. Fails with UNAVAILABLE if a server did not answer for
  // `patience_seconds`, with INVALID_ARGUMENT if the job does not offer the type, with CANCELLED
  // after Interrupt, and otherwise with the server's reason.
  Result<std::optional<FollowedVersion>> Next();
  // Makes a waiting call of Next, and all later ones, end with CANCELLED. Thread-safe.
  void Interrupt();

 private:
  struct State;
  explicit Follower(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace sluice::client
