// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/common_messages.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace sluice::protocol {
namespace {

constexpr size_t kTextMax = 4096;

// Returns true if `name` is a plain file name that cannot point outside its folder and is safe to
// log.
bool IsFileName(absl::string_view name) {
  return !name.empty() && name.size() <= kPartNameMax && name[0] != '.' &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isgraph(c) && c != '/' && c != '\\'; });
}

std::string PrintableName(absl::string_view name) {
  return absl::CHexEscape(name.substr(0, kPartNameMax));
}

}  // namespace

void SenderToProto(const Sender& sender, v1::Sender* message) {
  message->set_job_uid(sender.job_uid);
  message->set_term(sender.term);
  message->set_rank(sender.rank);
  message->set_incarnation(sender.incarnation);
  message->set_generation(sender.generation);
  message->set_server_incarnation(sender.server_incarnation);
}

Sender SenderFromProto(const v1::Sender& message) {
  return {.job_uid = message.job_uid(),
          .term = message.term(),
          .rank = message.rank(),
          .incarnation = message.incarnation(),
          .generation = message.generation(),
          .server_incarnation = message.server_incarnation()};
}

void PartToProto(const CheckpointPart& part, v1::CheckpointPart* message) {
  message->set_term(part.term);
  message->set_step(part.step);
  message->set_name(ValidText(part.name));
  message->set_bytes(part.bytes);
  message->set_checksum(part.checksum);
  message->set_error(ValidText(part.error));
  message->set_server(part.server);
  message->set_file(part.file);
  message->set_unreadable(part.unreadable);
}

CheckpointPart PartFromProto(const v1::CheckpointPart& message) {
  return {.term = message.term(),
          .step = message.step(),
          .name = message.name(),
          .bytes = message.bytes(),
          .checksum = message.checksum(),
          .error = message.error(),
          .server = message.server(),
          .unreadable = message.unreadable(),
          .file = message.file()};
}

CheckpointPart CheckedPartFromProto(const v1::CheckpointPart& message) {
  CheckpointPart part = PartFromProto(message);
  part.error = Shortened(part.error);
  if (IsFileName(part.name)) return part;
  part.name = PrintableName(part.name);
  if (part.error.empty()) {
    part.error = absl::StrCat("\"", part.name, "\" is not a valid name for a checkpoint file");
  }
  return part;
}

void LayoutToProto(const LayoutParameters& layout, v1::LayoutParameters* message) {
  message->set_chunk_elements(layout.chunk_elements);
  message->set_bundle_elements(layout.bundle_elements);
  if (layout.fragments != 1) message->set_fragments(layout.fragments);
}

LayoutParameters LayoutFromProto(const v1::LayoutParameters& message) {
  return {.chunk_elements = message.chunk_elements(),
          .bundle_elements = message.bundle_elements(),
          .fragments = message.has_fragments() ? message.fragments() : 1};
}

void WaitToProto(const DiskWait& wait, v1::DiskWait* message) {
  message->set_what(wait.what);
  message->set_seconds(absl::ToDoubleSeconds(wait.lasts));
  message->set_trouble(wait.trouble);
}

DiskWait WaitFromProto(const v1::DiskWait& message) {
  return {.what = Shortened(message.what()),
          .lasts = absl::Seconds(AmountFromProto(message.seconds())),
          .trouble = Shortened(message.trouble())};
}

v1::JobPhase PhaseToProto(JobPhase phase) {
  switch (phase) {
    case JobPhase::kWaiting:
      return v1::JOB_PHASE_WAITING;
    case JobPhase::kRunning:
      return v1::JOB_PHASE_RUNNING;
    case JobPhase::kFinished:
      return v1::JOB_PHASE_FINISHED;
    case JobPhase::kFailed:
      return v1::JOB_PHASE_FAILED;
    case JobPhase::kRecovering:
      return v1::JOB_PHASE_RECOVERING;
  }
  return v1::JOB_PHASE_UNSPECIFIED;
}

v1::LogLevel LevelToProto(std::optional<LogLevel> level) {
  if (!level.has_value()) return v1::LOG_LEVEL_UNSPECIFIED;
  switch (*level) {
    case LogLevel::kDebug:
      return v1::LOG_LEVEL_DEBUG;
    case LogLevel::kInfo:
      return v1::LOG_LEVEL_INFO;
    case LogLevel::kWarning:
      return v1::LOG_LEVEL_WARNING;
    case LogLevel::kError:
      return v1::LOG_LEVEL_ERROR;
  }
  return v1::LOG_LEVEL_UNSPECIFIED;
}

std::optional<LogLevel> LevelFromProto(v1::LogLevel level) {
  switch (level) {
    case v1::LOG_LEVEL_DEBUG:
      return LogLevel::kDebug;
    case v1::LOG_LEVEL_INFO:
      return LogLevel::kInfo;
    case v1::LOG_LEVEL_WARNING:
      return LogLevel::kWarning;
    case v1::LOG_LEVEL_ERROR:
      return LogLevel::kError;
    default:
      return std::nullopt;
  }
}

JobPhase PhaseFromProto(v1::JobPhase phase, JobPhase otherwise) {
  switch (phase) {
    case v1::JOB_PHASE_WAITING:
      return JobPhase::kWaiting;
    case v1::JOB_PHASE_RUNNING:
      return JobPhase::kRunning;
    case v1::JOB_PHASE_FINISHED:
      return JobPhase::kFinished;
    case v1::JOB_PHASE_FAILED:
      return JobPhase::kFailed;
    case v1::JOB_PHASE_RECOVERING:
      return JobPhase::kRecovering;
    default:
      return otherwise;
  }
}

std::string Shortened(const std::string& text) { return ValidText(text, kTextMax); }

double AmountFromProto(double amount) { return amount > 0 && std::isfinite(amount) ? amount : 0; }

}  // namespace sluice::protocol
