// SPDX-License-Identifier: Apache-2.0
#include "cli/run_messages.h"

#include <signal.h>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/launch/command_lines.h"
#include "job/job_spec.h"

namespace sluice::cli {
namespace {

// Returns the word as a shell reads it.
std::string Quoted(const std::string& word) {
  const bool plain =
      !word.empty() && word.find_first_of(" \t\n[]{}()<>|&;*?$!#~`\\'\"") == word.npos;
  return plain ? word : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

}  // namespace

std::string StartText(const RunOptions& options, const PreparedRun& run) {
  const job::JobSpec& job = run.spec;
  std::string text = absl::StrCat(job.name, options.dense ? " (dense)" : "", ": ", job.workers,
                                  " workers, ", job.shards, " shards");
  if (job.relays.enabled()) absl::StrAppend(&text, ", ", job.relays.workers.size(), " relays");
  if (run.start.continues) {
    absl::StrAppend(&text, ", continued after step ", run.start.checkpoint_step);
  }
  if (run.bits_per_second.has_value()) absl::StrAppend(&text, ", links of ", options.link_rate);
  if (!run.page_url.empty()) absl::StrAppend(&text, ", page ", run.page_url);
  absl::StrAppend(&text, ", logs in ", run.launch.log_folder);
  return absl::StrCat(text, "\n`sluice status --coordinator ", CoordinatorAddress(run.launch),
                      " --token-file ", Quoted(run.launch.token_file), "` shows its state.");
}

absl::string_view Advice(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return "The lines above or its log give the reason.";
  switch (WTERMSIG(wait_status)) {
    case SIGKILL:
      return "Unless a user killed it, the machine ran out of memory (see dmesg): use fewer "
             "workers, "
             "a smaller batch or a smaller server.window_bytes.";
    case SIGSEGV:
    case SIGABRT:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
      return "This is a crash caused by a bug in the program: please report it with its log.";
    default:
      return "It received that signal from outside; start the run again.";
  }
}

std::string ResumeCommand(const RunOptions& options) {
  std::string command = "sluice run --resume";
  if (!options.job_path.empty()) absl::StrAppend(&command, " ", options.job_path);
  if (options.workers > 0) absl::StrAppend(&command, " --workers ", options.workers);
  for (const std::string& set : options.sets) absl::StrAppend(&command, " --set ", Quoted(set));
  if (options.dense) absl::StrAppend(&command, " --dense");
  if (!options.command.empty()) absl::StrAppend(&command, " --");
  for (const std::string& word : options.command) absl::StrAppend(&command, " ", Quoted(word));
  return command;
}

}  // namespace sluice::cli
