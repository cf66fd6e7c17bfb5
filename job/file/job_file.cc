// SPDX-License-Identifier: Apache-2.0
#include "job/file/job_file.h"

#include <fstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "job/file/job_checks.h"
#include "job/file/job_conversion.h"
#include "job/file/job_text.h"
#include "job/file/own_program.h"
#include "job/file/presets.h"
#include "job/file/problems.h"
#include "job/file/reference_file.h"
#include "job/file/schema.h"
#include "job/file/yaml_mapper.h"
#include "job/file/yaml_source.h"

namespace sluice::job {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::StatusOr<std::string> ReadJobFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(absl::StrCat("cannot open the job file ", path,
                                            "; check the path and your read permission"));
  }
  // The buffer has one byte more than the limit, to detect larger files.
  std::string text(kMaxJobFileSize + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof())) {
    return absl::UnavailableError(absl::StrCat("cannot read the job file ", path));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

// The keys epochs and steps exclude each other, so a value for one on the command line removes the
// other.
void DropOther(absl::string_view path, v1::JobSpec* job) {
  if (path == "steps") job->clear_epochs();
  if (path == "epochs") job->clear_steps();
}

void ApplySet(const std::string& argument, Places* places, Problems* problems, v1::JobSpec* job) {
  const std::string where = absl::StrCat("--set ", absl::CHexEscape(argument.substr(0, 200)));
  const size_t equals = argument.find('=');
  if (equals == argument.npos || equals == 0) {
    return problems->Add(where, "must be key=value, like optimizer.lr=0.1");
  }
  const std::string path = argument.substr(0, equals);
  const std::vector<std::string> keys = absl::StrSplit(path, '.');
  Message* section = job;
  std::string so_far;
  for (const std::string& key : keys) {
    const FieldDescriptor* const field = FindKey(*section->GetDescriptor(), key);
    if (field == nullptr) {
      return problems->Add(where, UnknownKey(*section->GetDescriptor(), so_far, key));
    }
    const std::string warning = OldNameWarning(*field, so_far, key);
    if (!warning.empty()) problems->Warn(where, warning);
    so_far = JoinPath(so_far, field->name());
    places->Set(so_far, where);
    if (&key != &keys.back()) {
      if (field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        return problems->Add(where, absl::StrCat(so_far, " has no keys"));
      }
      if (field->options().HasExtension(v1::not_yet)) {
        return problems->Add(where, NotYet(*field, so_far));
      }
      section = section->GetReflection()->MutableMessage(section, field);
      continue;
    }
    const absl::StatusOr<YAML::Node> value = ParseYaml(argument.substr(equals + 1), "value");
    if (!value.ok()) return problems->Add(where, value.status().message());
    const YamlSource source = YamlSource::Argument(where);
    YamlMapper(&source, places, problems).MapKey(*value, so_far, *field, section);
    DropOther(so_far, job);
  }
}

// Puts the keys of the job's preset below the job's own keys. The job then no longer names it.
void ApplyPreset(v1::JobSpec* job, Places* places, Problems* problems) {
  if (!job->has_preset()) return;
  const Preset* const preset = FindPreset(job->preset());
  Check(preset != nullptr, "the schema knows the names of presets");
  const std::string where = absl::StrCat("preset ", preset->name);
  const absl::StatusOr<YAML::Node> root = ParseYaml(preset->keys, where);
  Check(root.ok(), "a preset is YAML");
  Places below(where);
  const YamlSource source = YamlSource::Argument(where);
  v1::JobSpec merged;
  YamlMapper(&source, &below, problems).MapSection(*root, "", &merged);
  merged.MergeFrom(*job);
  merged.clear_preset();
  *job = std::move(merged);
  places->AddBelow(below);
}

// Replaces the reference's file name by its points. Then processes with equal jobs have equal
// references, and the file is not needed again.
void InlineReference(const Places& places, v1::JobSpec* job, Problems* problems) {
  if (!job->control().has_reference()) return;
  const absl::StatusOr<std::vector<CurvePoint>> curve =
      ReadReferenceFile(job->control().reference());
  if (!curve.ok()) {
    problems->Add(places.Find("control.reference"),
                  absl::StrCat("control.reference: ", curve.status().message()));
    return;
  }
  v1::ControlSpec* const control = job->mutable_control();
  control->clear_reference();
  for (const CurvePoint& from : *curve) {
    v1::ReferencePoint* const point = control->add_reference_points();
    point->set_step(from.step);
    point->set_accuracy(from.metric / 100);
  }
}

struct ResolvedJob {
  v1::JobSpec job;
  // Warnings about the form of the file, not about the meaning of the job.
  std::vector<std::string> warnings;
};

absl::StatusOr<ResolvedJob> ResolveJob(absl::string_view text, absl::string_view file_name,
                                       const LoadJobOptions& options) {
  const absl::StatusOr<YAML::Node> root = ParseYaml(text, file_name);
  if (!root.ok()) return root.status();
  v1::JobSpec job;
  Places places(file_name);
  Problems problems;
  const YamlSource source = YamlSource::File(file_name);
  YamlMapper(&source, &places, &problems).MapSection(*root, "", &job);
  for (const std::string& argument : options.set) ApplySet(argument, &places, &problems, &job);
  if (problems.empty()) ApplyPreset(&job, &places, &problems);
  // Missing and conflicting keys can only be found after all given keys have been understood.
  if (problems.empty()) CheckOwnCommand(job, places, &problems);
  if (problems.empty()) CompleteJob(options.dense, places, &job, &problems);
  if (problems.empty()) InlineReference(places, &job, &problems);
  const absl::Status status = problems.ToStatus();
  if (!status.ok()) return status;
  return ResolvedJob{.job = std::move(job), .warnings = problems.warnings()};
}

}  // namespace

absl::StatusOr<LaunchJob> LoadLaunchJobFromText(absl::string_view text, absl::string_view file_name,
                                                const LoadJobOptions& options) {
  absl::StatusOr<ResolvedJob> resolved = ResolveJob(text, file_name, options);
  if (!resolved.ok()) return resolved.status();
  LaunchJob job{.spec = ConvertJob(resolved->job), .text = JobText(resolved->job), .command = {}};
  job.spec.file_warnings = std::move(resolved->warnings);
  job.command.assign(resolved->job.command().begin(), resolved->job.command().end());
  return job;
}

absl::StatusOr<LaunchJob> LoadLaunchJob(const LoadJobOptions& options) {
  const absl::StatusOr<std::string> text = ReadJobFile(options.path);
  if (!text.ok()) return text.status();
  return LoadLaunchJobFromText(*text, options.path, options);
}

absl::StatusOr<JobSpec> LoadJobFromText(absl::string_view text, absl::string_view file_name,
                                        const LoadJobOptions& options) {
  absl::StatusOr<LaunchJob> job = LoadLaunchJobFromText(text, file_name, options);
  if (!job.ok()) return job.status();
  return std::move(job->spec);
}

absl::StatusOr<JobSpec> LoadJob(const LoadJobOptions& options) {
  const absl::StatusOr<std::string> text = ReadJobFile(options.path);
  if (!text.ok()) return text.status();
  return LoadJobFromText(*text, options.path, options);
}

absl::StatusOr<std::string> ResolvedJobTextFromText(absl::string_view text,
                                                    absl::string_view file_name,
                                                    const LoadJobOptions& options) {
  absl::StatusOr<LaunchJob> job = LoadLaunchJobFromText(text, file_name, options);
  if (!job.ok()) return job.status();
  return std::move(job->text);
}

absl::StatusOr<std::string> ResolvedJobText(const LoadJobOptions& options) {
  const absl::StatusOr<std::string> text = ReadJobFile(options.path);
  if (!text.ok()) return text.status();
  return ResolvedJobTextFromText(*text, options.path, options);
}

}  // namespace sluice::job
