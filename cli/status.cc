// SPDX-License-Identifier: Apache-2.0
#include "cli/status.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "app/stop_signals.h"
#include "base/text.h"
#include "cli/launch/quantity.h"
#include "cli/launch/status_client.h"
#include "cli/progress.h"
#include "net/grpc/transport.h"

namespace sluice::cli {
namespace {

constexpr int kWatchMilliseconds = 1000;
constexpr int kPlansShown = 3;  // The number of newest plans to show.
constexpr int kLinksShown = 16;
constexpr size_t kWidth = 1000;  // Lines are not cut here. The terminal may wrap them.

std::string CheckpointLine(const v1::GetStatusReply& status) {
  std::string line = status.checkpoint_step() == 0
                         ? "no checkpoint"
                         : absl::StrCat("checkpoint after step ", status.checkpoint_step());
  if (status.seconds_since_checkpoint() > 0) {
    absl::StrAppendFormat(&line, ", %.0f s ago", status.seconds_since_checkpoint());
  }
  absl::StrAppend(&line, "  term ", status.term(), "  rollbacks ", status.rollbacks(), "  repairs ",
                  status.repairs());
  if (!status.recovery_class().empty()) {
    absl::StrAppend(&line, "\nrecovery class ", status.recovery_class());
  }
  if (!status.recovery_reason().empty()) absl::StrAppend(&line, ": ", status.recovery_reason());
  return line;
}

std::string LinkOf(double bytes_per_second, double latency_seconds) {
  if (bytes_per_second <= 0) return "not known yet";
  return absl::StrFormat("%.3g MB/s, latency %.3g ms", bytes_per_second / 1e6,
                         1000 * latency_seconds);
}

// Returns a line for each of the first kLinksShown workers whose links are known.
std::string LinkLines(const v1::GetStatusReply& status) {
  std::string text;
  int shown = 0;
  for (const v1::MemberStatus& member : status.members()) {
    const v1::LinkStatus& link = member.link();
    if (link.up_bytes_per_second() <= 0 && link.down_bytes_per_second() <= 0) continue;
    if (++shown > kLinksShown) break;
    absl::StrAppend(&text, "\nlink of worker ", member.rank(), "  up ",
                    LinkOf(link.up_bytes_per_second(), link.up_latency_seconds()), "; down ",
                    LinkOf(link.down_bytes_per_second(), link.down_latency_seconds()));
  }
  return text;
}

std::string CodecLines(const v1::JobCodecs& codecs) {
  std::string text =
      absl::StrCat("compression ", codecs.uplink(), " up, ", codecs.downlink(), " down");
  const std::string momentum =
      codecs.momentum().empty() ? "" : absl::StrCat("; ", codecs.momentum());
  if (codecs.plans_size() == 0) return text + momentum;
  absl::StrAppend(&text, " in the job file; policy ", codecs.policy(), ", ", codecs.plans_made(),
                  codecs.plans_made() == 1 ? " plan" : " plans", momentum);
  for (int i = std::max(0, codecs.plans_size() - kPlansShown); i < codecs.plans_size(); ++i) {
    const v1::PlanChange& plan = codecs.plans(i);
    absl::StrAppend(&text, "\nplan ", plan.id(), " from step ", plan.effective_step(), ": ",
                    plan.what(), " (", plan.reason(), ")");
  }
  return text;
}

std::string WarningLines(const v1::GetStatusReply& status) {
  std::string text;
  for (const v1::StatusWarning& warning : status.warnings()) {
    absl::StrAppend(&text, "\n", warning.kind(), ": ", warning.text());
  }
  return text;
}

std::vector<std::string> CutTo(int width, const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::string& line : lines) {
    line = ValidText(line, static_cast<size_t>(std::max(width, 20)));
  }
  return lines;
}

void EscapeTexts(google::protobuf::Message* message) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  reflection.ListFields(*message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    const bool text = field->type() == google::protobuf::FieldDescriptor::TYPE_STRING;
    if (!text && field->message_type() == nullptr) continue;
    if (!field->is_repeated()) {
      if (text) {
        reflection.SetString(message, field, EscapeControls(reflection.GetString(*message, field)));
      } else {
        EscapeTexts(reflection.MutableMessage(message, field));
      }
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      if (text) {
        reflection.SetRepeatedString(
            message, field, i, EscapeControls(reflection.GetRepeatedString(*message, field, i)));
      } else {
        EscapeTexts(reflection.MutableRepeatedMessage(message, field, i));
      }
    }
  }
}

}  // namespace

v1::GetStatusReply WithoutControls(v1::GetStatusReply status) {
  EscapeTexts(&status);
  return status;
}

std::string FormatStatus(const v1::GetStatusReply& received) {
  const v1::GetStatusReply status = WithoutControls(received);
  ProgressFrame frame;
  frame.elapsed = absl::Milliseconds(status.uptime_ms());
  std::string text = absl::StrJoin(ProgressTable(status, frame, kWidth), "\n");
  for (const v1::ShardStatus& shard : status.shards()) {
    absl::StrAppend(&text, "\nshard ", shard.shard(), "  ");
    if (shard.lost()) {
      absl::StrAppend(&text, shard.address());
      absl::StrAppendFormat(&text, "  lost: no message for %.0f s; the job waits for it",
                            shard.seconds_since_report());
    } else if (shard.attached()) {
      absl::StrAppend(&text, shard.address(), "  ", shard.elements(),
                      " parameters  closed up to step ", shard.highest_closed_step());
      absl::StrAppendFormat(&text, "  last message %.1f s ago", shard.seconds_since_report());
    } else {
      absl::StrAppend(&text, "not here yet");
    }
  }
  text += LinkLines(status);
  text += WarningLines(status);
  if (!status.codecs().uplink().empty()) absl::StrAppend(&text, "\n", CodecLines(status.codecs()));
  const bool has_checkpoints =
      !status.recovery_class().empty() && status.recovery_class() != "none";
  if (status.checkpoint_step() > 0 || status.term() > 0 || has_checkpoints) {
    absl::StrAppend(&text, "\n", CheckpointLine(status));
  }
  if (!status.failure().empty()) absl::StrAppend(&text, "\nfailure: ", status.failure());
  return text;
}

std::optional<std::string> StatusJson(const v1::GetStatusReply& status, bool line) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = !line;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(status, &text, options).ok()) {
    return std::nullopt;
  }
  return std::string(absl::StripTrailingAsciiWhitespace(text));
}

std::string WhyNoAnswer(const std::string& coordinator, const absl::Status& why) {
  const std::string message = EscapeControls(why.message());
  if (absl::IsUnauthenticated(why)) return absl::StrCat("error: ", message, "\n");
  return absl::StrCat("error: nothing answers at ", coordinator, ": ", message,
                      "\nCheck that a job is running there, and give the --listen address of shard "
                      "0, the coordinator.\n");
}

std::shared_ptr<const net::Transport> OpenTransport(const net::TransportOptions& security) {
  absl::StatusOr<std::shared_ptr<const net::Transport>> transport =
      net::Transport::Open(security, Logger("status"));
  if (transport.ok()) return *std::move(transport);
  std::fputs(absl::StrCat("error: ", transport.status().message(), "\n").c_str(), stderr);
  return nullptr;
}

int AskForStatus(const StatusOptions& options, v1::GetStatusReply* status) {
  const std::shared_ptr<const net::Transport> transport = OpenTransport(options.security);
  if (transport == nullptr) return 2;
  StatusClient client(options.coordinator, transport);
  client.Ask(kStatusTimeout);
  absl::StatusOr<v1::GetStatusReply> answer = absl::UnavailableError("no answer");
  if (!client.WaitForStatus(kStatusTimeout + absl::Seconds(1), &answer) || !answer.ok()) {
    std::fputs(WhyNoAnswer(options.coordinator, answer.status()).c_str(), stderr);
    return 1;
  }
  *status = *std::move(answer);
  return 0;
}

int ShowStatus(const StatusOptions& options) {
  std::optional<app::StopSignals> signals;
  if (options.watch) {  // Must run before any thread starts.
    absl::StatusOr<app::StopSignals> caught = app::StopSignals::Catch();
    if (!caught.ok()) {
      std::fputs(absl::StrCat("error: ", caught.status().message(), "\n").c_str(), stderr);
      return 1;
    }
    signals.emplace(*std::move(caught));
  }
  const std::shared_ptr<const net::Transport> transport = OpenTransport(options.security);
  if (transport == nullptr) return 2;
  StatusClient client(options.coordinator, transport);
  Console console(options.console);
  v1::GetStatusReply last;
  for (bool first = true;; first = false) {
    client.Ask(kStatusTimeout);
    absl::StatusOr<v1::GetStatusReply> answer = absl::UnavailableError("no answer");
    const bool here =
        client.WaitForStatus(kStatusTimeout + absl::Seconds(1), &answer) && answer.ok();
    if (!here && !first) {
      console.ClearBlock();
      if (!options.json) console.Say(FormatStatus(last));
      console.Warning(absl::StrCat(options.coordinator,
                                   " no longer answers: the job has ended, or its coordinator was "
                                   "lost. The last answer is above"));
      return 1;
    }
    if (!here) {
      std::fputs(WhyNoAnswer(options.coordinator, answer.status()).c_str(), stderr);
      return 1;
    }
    last = *std::move(answer);
    const std::optional<std::string> text =
        options.json ? StatusJson(last, options.watch) : FormatStatus(last);
    if (!text.has_value()) return 1;
    const bool over =
        last.phase() == v1::JOB_PHASE_FINISHED || last.phase() == v1::JOB_PHASE_FAILED;
    if (options.watch && !over && !options.json && options.console.terminal) {
      console.DrawBlock(CutTo(TerminalWidth(options.console.out) - 1, *text));
    } else {
      console.ClearBlock();
      console.Say(*text);
    }
    if (!options.watch) return 0;
    if (over) return last.phase() == v1::JOB_PHASE_FINISHED ? 0 : 1;
    pollfd stop{.fd = signals->fd(), .events = POLLIN, .revents = 0};
    if (::poll(&stop, 1, kWatchMilliseconds) > 0) {
      if (const std::optional<int> signal = signals->Take()) return 128 + *signal;
    }
  }
}

}  // namespace sluice::cli
