// SPDX-License-Identifier: Apache-2.0
// JoinedSession: a client that has joined its job, and the session that it got, for tests.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protocol/tensor_table.h"
#include "worker/core/job_client.h"
#include "worker/rpc/remote_client.h"

namespace sluice::worker {

class JoinedSession {
 public:
  // Joins, and waits for the other ranks.
  JoinedSession(RemoteSessionOptions options, const protocol::TensorTable& table,
                absl::string_view parameters_sha256 = "")
      : client_(MakeRemoteClient(std::move(options))),
        joined_(client_->Join(table, parameters_sha256)) {}

  // The methods below `status` require that it is OK.
  absl::Status status() const { return joined_.status(); }
  bool ok() const { return joined_.ok(); }
  const JoinInfo& info() const { return joined_->info; }
  Session* get() const { return joined_->session; }
  Session* operator->() const { return joined_->session; }
  JobClient* client() { return client_.get(); }

 private:
  const std::unique_ptr<JobClient> client_;
  const absl::StatusOr<JoinedJob> joined_;
};

}  // namespace sluice::worker
