// SPDX-License-Identifier: Apache-2.0
// LastCheckpoint: the checkpoint that a stopping server waits for. The request's callback shares
// this object, because the callback may run after the server is destroyed.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "sluice/v1/coordinator.grpc.pb.h"

namespace sluice::server {

struct LastCheckpoint {
  // `advice` is appended to the message that reports the complete checkpoint.
  LastCheckpoint(Logger log, absl::string_view words) : logger(std::move(log)), advice(words) {}
  // Logs the step of the checkpoint, or why there is none.
  void Answer(const absl::StatusOr<uint64_t>& step);

  const Logger logger;
  const absl::string_view advice;
  std::atomic<bool> answered = false;
  // This and the following fields are only used if the coordinator is in another process.
  grpc::ClientContext context;
  v1::RequestCheckpointRequest request;
  v1::RequestCheckpointReply reply;
  std::unique_ptr<v1::Coordinator::Stub> stub;
};

// Sends the request to the coordinator at the other end of `channel`, which has `patience` to
// answer.
void RequestFrom(const std::shared_ptr<grpc::Channel>& channel, absl::Duration patience,
                 const std::shared_ptr<LastCheckpoint>& last);

}  // namespace sluice::server
