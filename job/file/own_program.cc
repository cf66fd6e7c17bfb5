// SPDX-License-Identifier: Apache-2.0
#include "job/file/own_program.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "job/enums.h"

namespace sluice::job {

bool CompleteOwnProgram(v1::JobSpec* job) {
  if (!job->has_model() && !job->has_data()) {
    job->mutable_model()->set_name("custom");
    job->mutable_data()->set_format(std::string(NameOf(DataFormat::kCustom)));
  }
  return job->model().name() == "custom";
}

void CheckOwnCommand(const v1::JobSpec& job, const Places& places, Problems* problems) {
  if (job.command().empty()) return;
  const auto fail = [&](absl::string_view path, absl::string_view text) {
    problems->Add(places.Find(path), absl::StrCat(path, ": ", text));
  };
  if (job.has_model() && job.model().name() != "custom") {
    fail("model", "the program of `command` has its own model; remove `model`, or `command`");
  }
  if (job.has_data() && FindByName<DataFormat>(job.data().format()) != DataFormat::kCustom) {
    fail("data", "the program of `command` reads its own data; remove `data`, or `command`");
  }
  if (job.command(0).empty()) fail("command", "the first entry is empty; name a program");
  for (const std::string& argument : job.command()) {
    if (!absl::StrContains(argument, '\0')) continue;
    fail("command", "has an entry with a zero byte, which no program can receive");
    break;
  }
}

bool IsTheProgramsOwn(absl::string_view path) {
  // This also matches `baseline.optimizer.lr`.
  return path == "batch_size_per_worker" || absl::EndsWith(path, "optimizer.lr");
}

}  // namespace sluice::job
