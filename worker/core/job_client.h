// SPDX-License-Identifier: Apache-2.0
// JobClient: a worker's access to a job. Join waits for the job's other members and returns the
// session. worker/rpc implements it over gRPC, worker/local for a job of one process, and tests
// implement it in memory.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protocol/tensor_table.h"
#include "worker/core/session.h"

namespace sluice::worker {

struct JoinedJob {
  JoinInfo info{};
  Session* session = nullptr;  // Owned by the client.
};

class JobClient {
 public:
  virtual ~JobClient() = default;

  // Waits for all ranks and shards. The coordinator compares `parameters_sha256` (32 bytes) between
  // ranks. Call it once: after a failure, every later call fails with the same error.
  virtual absl::StatusOr<JoinedJob> Join(const protocol::TensorTable& table,
                                         absl::string_view parameters_sha256) = 0;
  // Gives up, as Session::Abandon does. Before Join, or during it, Join ends with CANCELLED. After
  // a Join that failed, the job is not notified. Thread-safe.
  virtual void Abandon(absl::string_view reason) = 0;
  // The figures of the session. Absent before Join. Thread-safe.
  virtual std::optional<SessionFigures> figures() const = 0;
};

}  // namespace sluice::worker
