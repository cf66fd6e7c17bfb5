// SPDX-License-Identifier: Apache-2.0
#include "cli/validate.h"

#include <iostream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compress/codec_spec.h"
#include "job/momentum.h"

namespace sluice::cli {
namespace {

constexpr int kJobIsWrong = 2;

std::string Length(const job::JobSpec& spec) {
  if (spec.training.epochs > 0)
    return absl::StrCat(spec.training.epochs, spec.training.epochs == 1 ? " epoch" : " epochs");
  return absl::StrCat(spec.training.steps, spec.training.steps == 1 ? " step" : " steps");
}

std::string Summary(const job::JobSpec& spec) {
  const protocol::CompressionSpec& compression = spec.exchange.compression;
  std::string text =
      absl::StrFormat("ok: %s (job hash %016x): %s, %d workers x batch %d, %d shards, %s\n",
                      spec.name, spec.hash, spec.model.name, spec.workers,
                      spec.training.batch_size_per_worker, spec.shards, Length(spec));
  absl::StrAppend(&text, "uplink ", ToString(compression.uplink), ", downlink ",
                  ToString(compression.downlink));
  for (const protocol::CompressionOverride& entry : compression.overrides) {
    absl::StrAppend(&text, "; tensors ", entry.tensors, ":");
    if (entry.uplink) absl::StrAppend(&text, " uplink ", ToString(*entry.uplink));
    if (entry.downlink) absl::StrAppend(&text, " downlink ", ToString(*entry.downlink));
  }
  text += "\n";
  if (spec.relays.enabled()) {
    absl::StrAppend(&text, spec.relays.workers.size(), " relays with ",
                    absl::StrJoin(spec.relays.workers, ", "), " workers behind them, uplink ",
                    ToString(spec.relays.uplink), ", downlink none\n");
  }
  if (const std::string note = job::MomentumNote(spec); !note.empty()) {
    absl::StrAppend(&text, note, "\n");
  }
  for (const std::string& warning : job::JobWarnings(spec)) {
    absl::StrAppend(&text, "warning: ", warning, "\n");
  }
  return text;
}

// Returns the first item of `expected` that contradicts the job. `text` is the job in text form.
std::optional<std::string> FirstUnmet(const job::LoadJobOptions& options,
                                      const std::vector<std::string>& expected,
                                      const std::string& text) {
  for (const std::string& one : expected) {
    job::LoadJobOptions changed = options;
    changed.set.push_back(one);
    const absl::StatusOr<std::string> with = job::ResolvedJobText(changed);
    if (!with.ok() || *with != text) return one;
  }
  return std::nullopt;
}

}  // namespace

int ValidateCommand(const job::LoadJobOptions& options, const std::vector<std::string>& expected,
                    std::ostream& out, std::ostream& err) {
  const absl::StatusOr<job::JobSpec> spec = job::LoadJob(options);
  const absl::StatusOr<std::string> text =
      spec.ok() ? job::ResolvedJobText(options) : absl::StatusOr<std::string>(spec.status());
  if (!text.ok()) {
    err << std::string(text.status().message()) << "\n";
    return kJobIsWrong;
  }
  if (const std::optional<std::string> unmet = FirstUnmet(options, expected, *text)) {
    err << *text << "\n"
        << options.path << ": the job is expected to have " << *unmet
        << ", but it has something else (above): change the file, or the launcher\n";
    return kJobIsWrong;
  }
  out << *text << "\n" << Summary(*spec);
  return 0;
}

int ValidateJob(const job::LoadJobOptions& options, const std::vector<std::string>& expected) {
  return ValidateCommand(options, expected, std::cout, std::cerr);
}

}  // namespace sluice::cli
