// SPDX-License-Identifier: Apache-2.0
#include "cli/administer.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/text.h"
#include "net/grpc/transport.h"
#include "protocol/wire/common_messages.h"
#include "sluice/v1/coordinator.grpc.pb.h"

namespace sluice::cli {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);

int Complain(absl::string_view text) {
  std::fputs(absl::StrCat("error: ", EscapeControls(text), "\n").c_str(), stderr);
  return 1;
}

// Sends one request. Returns the exit code of the program.
template <typename Request, typename Reply>
int Ask(const StatusOptions& options,
        grpc::Status (v1::Coordinator::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
        const Request& request, Reply* reply) {
  const std::shared_ptr<const net::Transport> transport = OpenTransport(options.security);
  if (transport == nullptr) return 2;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kTimeout));
  const std::unique_ptr<v1::Coordinator::Stub> stub =
      v1::Coordinator::NewStub(transport->DialForQuestions(options.coordinator));
  const grpc::Status status = (stub.get()->*method)(&context, request, reply);
  if (status.ok()) return 0;
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      std::fputs(WhyNoAnswer(options.coordinator,
                             absl::UnavailableError(transport->Explain(status.error_message())))
                     .c_str(),
                 stderr);
      return 1;
    case grpc::StatusCode::UNIMPLEMENTED:
      return Complain(absl::StrCat(options.coordinator,
                                   " does not know this command: is it shard 0 of a job, and of "
                                   "this version?"));
    default:
      return Complain(status.error_message());
  }
}

}  // namespace

int EvictRank(const StatusOptions& options, const EvictCommand& command) {
  v1::EvictRankRequest request;
  request.set_rank(command.rank);
  request.set_reason(ValidText(command.reason));
  request.set_allow_rollback(command.allow_rollback);
  v1::EvictRankReply reply;
  const int failed = Ask(options, &v1::Coordinator::Stub::EvictRank, request, &reply);
  if (failed != 0) return failed;
  return std::fputs(absl::StrCat(EscapeControls(reply.outcome()), "\n").c_str(), stdout) < 0;
}

int ChangeSettings(const StatusOptions& options, const SetCommand& command) {
  v1::ChangeSettingsRequest request;
  if (command.lease_timeout.has_value()) {
    request.set_lease_timeout_seconds(absl::ToDoubleSeconds(*command.lease_timeout));
  }
  request.set_log_level(protocol::LevelToProto(command.log_level));
  v1::ChangeSettingsReply reply;
  const int failed = Ask(options, &v1::Coordinator::Stub::ChangeSettings, request, &reply);
  if (failed != 0) return failed;
  const std::optional<LogLevel> level = protocol::LevelFromProto(reply.log_level());
  const std::string text = absl::StrCat(
      "lease timeout: ", absl::FormatDuration(absl::Seconds(reply.lease_timeout_seconds())),
      "\nlog level: ",
      level.has_value() ? NameOf(*level) : "that of each process's flags (not changed)", "\n");
  return std::fputs(text.c_str(), stdout) < 0;
}

}  // namespace sluice::cli
