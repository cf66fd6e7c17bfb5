#include "job/file/own_program.h"

#include "absl/strings/match.h"

namespace sluice::job {

bool CompleteOwnProgram(v1::JobSpec* job) {
  if (!job->has_model() && !job->has_data()) {
    job->mutable_model()->set_name("custom");
    job->mutable_data()->set_format("custom");
  }
  return job->model().name() == "custom";
}

bool IsTheProgramsOwn(absl::string_view path) {
  // This also matches `baseline.optimizer.lr`.
  return path == "batch_size_per_worker" || absl::EndsWith(path, "optimizer.lr");
}

}  // namespace sluice::job
