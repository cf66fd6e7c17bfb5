// SPDX-License-Identifier: Apache-2.0
#include "worker/core/session.h"

#include "absl/strings/cord.h"

namespace sluice::worker {
namespace {

constexpr char kRollbackPayload[] = "sluice/rollback";

}  // namespace

bool IsRollback(const absl::Status& status) {
  return status.GetPayload(kRollbackPayload).has_value();
}

absl::Status RollbackError(absl::string_view message) {
  absl::Status status = absl::AbortedError(message);
  status.SetPayload(kRollbackPayload, absl::Cord());
  return status;
}

absl::Status CheckTaken(bool as_update, bool shards_update) {
  if (as_update == shards_update) return absl::OkStatus();
  return absl::FailedPreconditionError(
      as_update
          ? "the workers' optimizers do the updates in this job, and a mean is not an update: use "
            "Apply, or optimizer.location: shards"
          : "the shards do the updates in this job (optimizer.location, or its mode), and publish "
            "no means: use ApplyUpdate, and no optimizer on the workers");
}

}  // namespace sluice::worker
