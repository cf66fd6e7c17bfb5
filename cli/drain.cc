// SPDX-License-Identifier: Apache-2.0
#include "cli/drain.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "app/stop_signals.h"
#include "base/text.h"
#include "cli/launch/console.h"
#include "cli/launch/status_client.h"
#include "cli/restart_answer.h"

namespace sluice::cli {
namespace {

constexpr int kSafe = 0;
constexpr int kNotSafe = 1;
constexpr int kWrongFlags = 2;
constexpr absl::Duration kSlice = absl::Milliseconds(100);  // Between two looks for Ctrl-C.
constexpr int kSlicesPerStatus = 10;

// The requests of one command. A failure, which has been printed, is an exit code.
class Drain {
 public:
  Drain(const DrainOptions& options, std::shared_ptr<const net::Transport> transport,
        app::StopSignals* signals)
      : options_(options),
        client_(options.status.coordinator, std::move(transport)),
        signals_(*signals) {}

  int Run() {
    if (const int failed = AskStatus(); failed != 0) return failed;
    if (answer_.checkpoint_helps && !options_.check_only) {
      if (const int failed = AwaitCheckpoint(); failed != 0) return failed;
    }
    const std::string text = absl::StrCat(answer_.text, "\n");
    if (std::fputs(text.c_str(), options_.status.console.out) < 0) return kNotSafe;
    return answer_.safe ? kSafe : kNotSafe;
  }

 private:
  int Fail(absl::string_view text) {
    Console(options_.status.console).Error(text);
    return kNotSafe;
  }

  // Returns the exit code if a signal has arrived.
  std::optional<int> Stopped() {
    const std::optional<int> signal = signals_.Take();
    if (!signal.has_value()) return std::nullopt;
    return 128 + *signal;
  }

  // Waits for the answer to a request that was sent.
  std::optional<int> ReadStatus(absl::StatusOr<v1::GetStatusReply>* reply) {
    while (!client_.WaitForStatus(kSlice, reply)) {
      if (const std::optional<int> code = Stopped()) return code;
    }
    status_in_flight_ = false;
    return std::nullopt;
  }

  int AskStatus() {
    absl::StatusOr<v1::GetStatusReply> reply = absl::UnavailableError("no answer");
    // The answer to an earlier request may be older than the checkpoint.
    if (status_in_flight_) {
      if (const std::optional<int> code = ReadStatus(&reply)) return *code;
    }
    client_.Ask(kStatusTimeout);
    if (const std::optional<int> code = ReadStatus(&reply)) return *code;
    return Judge(reply);
  }

  int Judge(const absl::StatusOr<v1::GetStatusReply>& reply) {
    if (!reply.ok()) {
      std::fputs(WhyNoAnswer(options_.status.coordinator, reply.status()).c_str(),
                 options_.status.console.err);
      return kNotSafe;
    }
    absl::StatusOr<RestartAnswer> answer = MayRestart(*reply, options_.shard);
    if (!answer.ok()) return Fail(answer.status().message());
    job_name_ = reply->job_name();
    answer_ = *std::move(answer);
    return 0;
  }

  // Returns 0 when the checkpoint is complete, or when a loss makes it impossible.
  int AwaitCheckpoint() {
    Console console(options_.status.console);
    console.DrawBlock(
        {absl::StrCat("waiting for a checkpoint, at most ", absl::FormatDuration(options_.timeout),
                      "; Ctrl-C ends only this command")});
    client_.AskCheckpoint(job_name_, options_.timeout);
    absl::StatusOr<uint64_t> step = uint64_t{0};
    for (int slice = 0; !client_.WaitForCheckpoint(kSlice, &step); ++slice) {
      if (const std::optional<int> code = Stopped()) return *code;
      if (slice % kSlicesPerStatus == 0) {
        client_.Ask(kStatusTimeout);
        status_in_flight_ = true;
      }
      absl::StatusOr<v1::GetStatusReply> reply = absl::UnavailableError("no answer");
      if (!client_.WaitForStatus(absl::ZeroDuration(), &reply)) continue;
      status_in_flight_ = false;
      if (const int failed = Judge(reply); failed != 0) return failed;
      if (!answer_.checkpoint_helps) return 0;
    }
    if (!step.ok()) return Fail(WhyNoCheckpoint(step.status(), options_.timeout));
    return AskStatus();
  }

  const DrainOptions& options_;
  StatusClient client_;
  app::StopSignals& signals_;
  bool status_in_flight_ = false;
  std::string job_name_;
  RestartAnswer answer_;
};

}  // namespace

std::string WhyNoCheckpoint(const absl::Status& why, absl::Duration timeout) {
  const std::string message = EscapeControls(why.message());
  if (absl::IsPermissionDenied(why)) {
    return absl::StrCat(
        message,
        ". Only an administrator may request a checkpoint: give the --token-file or "
        "--tls-cert of one, or --check, which requests none");
  }
  if (absl::IsDeadlineExceeded(why)) {
    return absl::StrCat("the checkpoint was not complete within ", absl::FormatDuration(timeout),
                        " (--timeout): `sluice why` says what the job waits for; do not restart "
                        "the shard before");
  }
  return message;
}

int DrainShard(const DrainOptions& options) {
  // Must run before any thread starts.
  absl::StatusOr<app::StopSignals> signals = app::StopSignals::Catch();
  if (!signals.ok()) {
    std::fputs(absl::StrCat("error: ", signals.status().message(), "\n").c_str(), stderr);
    return kNotSafe;
  }
  std::shared_ptr<const net::Transport> transport = OpenTransport(options.status.security);
  if (transport == nullptr) return kWrongFlags;
  return Drain(options, std::move(transport), &*signals).Run();
}

}  // namespace sluice::cli
