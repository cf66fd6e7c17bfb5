// SPDX-License-Identifier: Apache-2.0
// Fuzzer for job files: any text and overrides must give either an error for a terminal or a job
// whose complete file gives the same job again. Input: a byte (bit 0: dense), then the job file,
// then the overrides of --set. A NUL byte ends each of them.

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/text.h"
#include "job/file/job_file.h"

namespace sluice::job {
namespace {

// The result must not depend on files of this machine.
bool NamesAFile(absl::string_view text) { return absl::StrContains(text, "reference"); }

void CheckJob(absl::string_view input) {
  if (input.empty() || NamesAFile(input)) return;
  LoadJobOptions options{.path = "", .set = {}, .dense = (input.front() & 1) != 0};
  input.remove_prefix(1);
  std::vector<std::string> pieces = absl::StrSplit(input, '\0');
  options.set.assign(pieces.begin() + 1, pieces.end());
  const absl::StatusOr<LaunchJob> job = LoadLaunchJobFromText(pieces[0], "job.yaml", options);
  if (!job.ok()) {
    Check(absl::IsInvalidArgument(job.status()), "a text that is no job is an invalid argument");
    Check(!job.status().message().empty(), "an error says what is wrong");
    return;
  }
  const absl::StatusOr<LaunchJob> again = LoadLaunchJobFromText(job->text, "resolved.yaml", {});
  Check(again.ok(), again.status().message());
  Check(again->text == job->text, "a complete job file stays as it is");
  Check(again->spec.hash == job->spec.hash, "a complete job file describes the same job");
  Check(again->command == job->command, "a complete job file keeps the command");
}

}  // namespace
}  // namespace sluice::job

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::job::CheckJob({reinterpret_cast<const char*>(data), size});
  return 0;
}
