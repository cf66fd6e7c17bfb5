#include "cli/validate.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compress/codec_spec.h"

namespace sluice {
namespace {

constexpr int kJobIsWrong = 2;

std::string Length(const JobSpec& spec) {
  if (spec.epochs > 0) return absl::StrCat(spec.epochs, spec.epochs == 1 ? " epoch" : " epochs");
  return absl::StrCat(spec.steps, spec.steps == 1 ? " step" : " steps");
}

std::string Summary(const JobSpec& spec) {
  const CompressionSpec& compression = spec.compression;
  std::string text = absl::StrFormat(
      "ok: %s (job hash %016x): %s, %d workers x batch %d, %d shards, %s\n", spec.name, spec.hash,
      spec.model.name, spec.workers, spec.batch_size_per_worker, spec.shards, Length(spec));
  absl::StrAppend(&text, "uplink ", ToString(compression.uplink), ", downlink ",
                  ToString(compression.downlink));
  for (const CompressionOverride& entry : compression.overrides) {
    absl::StrAppend(&text, "; tensors ", entry.tensors, ":");
    if (entry.uplink) absl::StrAppend(&text, " uplink ", ToString(*entry.uplink));
    if (entry.downlink) absl::StrAppend(&text, " downlink ", ToString(*entry.downlink));
  }
  text += "\n";
  if (spec.relays.enabled()) {
    absl::StrAppend(&text, spec.relays.workers.size(), " relays with ",
                    absl::StrJoin(spec.relays.workers, ", "), " workers behind them, from these ",
                    ToString(spec.relays.uplink), ", to these none\n");
  }
  for (const std::string& warning : JobWarnings(spec)) {
    absl::StrAppend(&text, "warning: ", warning, "\n");
  }
  return text;
}

}  // namespace

int ValidateCommand(const LoadJobOptions& options, std::ostream& out, std::ostream& err) {
  const absl::StatusOr<JobSpec> spec = LoadJob(options);
  const absl::StatusOr<std::string> text =
      spec.ok() ? ResolvedJobText(options) : absl::StatusOr<std::string>(spec.status());
  if (!text.ok()) {
    err << std::string(text.status().message()) << "\n";
    return kJobIsWrong;
  }
  out << *text << "\n" << Summary(*spec);
  return 0;
}

int ValidateJob(const std::string& path, const std::vector<std::string>& sets, bool dense) {
  return ValidateCommand({path, sets, dense}, std::cout, std::cerr);
}

}  // namespace sluice
