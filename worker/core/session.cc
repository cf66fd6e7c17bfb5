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

}  // namespace sluice::worker
