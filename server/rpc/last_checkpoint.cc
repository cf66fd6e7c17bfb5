// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/last_checkpoint.h"

#include "absl/status/status.h"
#include "net/grpc/steady_deadline.h"

namespace sluice::server {

void LastCheckpoint::Answer(const absl::StatusOr<uint64_t>& step) {
  if (step.ok()) {
    logger.Info("the checkpoint after step ", *step, " is complete", advice);
  } else {
    logger.Warning("no new checkpoint: ", step.status().message());
  }
  answered = true;
}

void RequestFrom(const std::shared_ptr<grpc::Channel>& channel, absl::Duration patience,
                 const std::shared_ptr<LastCheckpoint>& last) {
  last->stub = v1::Coordinator::NewStub(channel);
  last->context.set_deadline(net::SteadyDeadline(patience));
  last->stub->async()->RequestCheckpoint(
      &last->context, &last->request, &last->reply, [last](const grpc::Status& status) {
        if (status.ok()) {
          last->Answer(last->reply.step());
        } else {
          last->Answer(absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                                    status.error_message()));
        }
      });
}

}  // namespace sluice::server
