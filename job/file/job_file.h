// SPDX-License-Identifier: Apache-2.0
// Job files: converts YAML to a checked JobSpec. The schema is proto/sluice/v1/job.proto;
// docs/job-file.md explains the keys. Reading is strict: an unknown key or word is an error that
// names file, line and column and lists the known alternatives.
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
  // Items "key.key=value", which override the file's keys in this order. The value is a YAML
  // scalar, list or map.
  std::vector<std::string> set;
  // If true, the same job runs uncompressed: the file's `baseline` applies, and every tensor
  // travels as exact fp32 in both directions.
  bool dense = false;
};

// Fails with NOT_FOUND or a similar error if the file cannot be read. Fails with INVALID_ARGUMENT
// if the text is not a job that this version can run. The message then has one problem per line,
// and a problem with a codec spec has two more lines that point at the error.
absl::StatusOr<JobSpec> LoadJob(const LoadJobOptions& options);

// Loads a job from text that is already in memory. Messages use `file_name` as the file's name.
// options.path is not used.
absl::StatusOr<JobSpec> LoadJobFromText(absl::string_view text, absl::string_view file_name,
                                        const LoadJobOptions& options);

// A job in the form that a launcher needs.
struct LaunchJob {
  JobSpec spec;
  std::string text;  // As from ResolvedJobText.
  // The job's `command`: the program of the workers and its arguments. Empty for sluice-worker.
  std::vector<std::string> command;
};
absl::StatusOr<LaunchJob> LoadLaunchJob(const LoadJobOptions& options);
absl::StatusOr<LaunchJob> LoadLaunchJobFromText(absl::string_view text, absl::string_view file_name,
                                                const LoadJobOptions& options);

// Returns the job as a complete job file: defaults written out, overrides applied, and codec specs
// in canonical form. Loading this file gives an equal JobSpec.
absl::StatusOr<std::string> ResolvedJobText(const LoadJobOptions& options);
absl::StatusOr<std::string> ResolvedJobTextFromText(absl::string_view text,
                                                    absl::string_view file_name,
                                                    const LoadJobOptions& options);

}  // namespace sluice::job
