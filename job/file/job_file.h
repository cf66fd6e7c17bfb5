// Job files: YAML in, a checked JobSpec out.
// The schema is proto/sluice/v1/job.proto; docs/job-file.md explains the keys. Reading is strict:
// whatever is not understood is an error that names file, line and column, and says what would be
// understood.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "job/job_spec.h"

namespace sluice::job {

inline constexpr size_t kMaxJobFileSize = 1 << 20;

struct LoadJobOptions {
  std::string path;
  // "key.key=value", applied in order over the file; the value is a YAML scalar, list or map.
  std::vector<std::string> set;
  // The same job uncompressed: the file's `baseline` applied, every tensor exact fp32 both ways.
  bool dense = false;
};

// NOT_FOUND and the like if the file cannot be read; INVALID_ARGUMENT with one problem per line
// (codec specs add two lines that point) if it is not a job this version can run.
absl::StatusOr<JobSpec> LoadJob(const LoadJobOptions& options);

// As LoadJob for text that has been read already; `file_name` is only for messages, options.path is
// not used.
absl::StatusOr<JobSpec> LoadJobFromText(absl::string_view text, absl::string_view file_name,
                                        const LoadJobOptions& options);

// What will run, as a job file that says everything: defaults written out, overrides applied, codec
// specs canonical. Loading it gives an equal JobSpec.
absl::StatusOr<std::string> ResolvedJobText(const LoadJobOptions& options);
absl::StatusOr<std::string> ResolvedJobTextFromText(absl::string_view text,
                                                    absl::string_view file_name,
                                                    const LoadJobOptions& options);

}  // namespace sluice::job
