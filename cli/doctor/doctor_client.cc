// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/doctor_client.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/doctor/doctor_service.h"
#include "cli/doctor/server_port.h"
#include "net/listener.h"
#include "sluice/v1/doctor.grpc.pb.h"

namespace sluice::cli {
namespace {

constexpr int kEchoes = 20;
constexpr double kRateMax = 1e15;
constexpr size_t kSecretMax = 64;
constexpr size_t kReasonMax = 500;  // Bytes of a message from the other machine.

// Answers that its methods do not exist. The other machine only asks whether the port answers.
class NoMethods final : public v1::Doctor::Service {};

bool IsAddress(const std::string& host) {
  in6_addr six{};
  in_addr four{};
  return ::inet_pton(AF_INET, host.c_str(), &four) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &six) == 1;
}

class Examination {
 public:
  Examination(const DoctorClientOptions& options, const net::Transport& transport)
      : options_(options), transport_(transport), stub_(NewStub()) {}

  absl::StatusOr<DoctorFindings> Run() {
    findings_.peer = options_.connect;
    findings_.here = options_.here;
    if (absl::Status begun = Begin(); !begun.ok()) return begun;
    findings_.reaches_peer = absl::Status();
    CallBack();
    Echo();
    // Each has a connection of its own, so that no bytes of the last check delay the next.
    Download(NewStub().get());
    Upload(NewStub().get());
    if (absl::Status ended = End(); !ended.ok()) return ended;
    return findings_;
  }

 private:
  std::unique_ptr<v1::Doctor::Stub> NewStub() const {
    // As workers do, through a proxy if there is one.
    return v1::Doctor::NewStub(transport_.Dial(options_.connect));
  }
  void Prepare(grpc::ClientContext* context, absl::Duration patience) const {
    context->set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience));
    if (!secret_.empty()) context->AddMetadata(kDoctorSecret, secret_);
  }
  absl::Status Failed(const grpc::Status& status) const {
    const std::string reason = ValidText(transport_.Explain(status.error_message()), kReasonMax);
    const auto code = static_cast<absl::StatusCode>(status.error_code());
    if (absl::IsUnimplemented(absl::Status(code, ""))) {
      return absl::UnimplementedError(absl::StrCat(
          options_.connect,
          " is another program, or another version; run `sluice doctor --listen` there"));
    }
    if (absl::IsDeadlineExceeded(absl::Status(code, ""))) {
      return absl::DeadlineExceededError(
          absl::StrCat(options_.connect, " did not answer within ",
                       absl::FormatDuration(options_.limits.patience),
                       "; check that a firewall lets the port through"));
    }
    if (absl::IsUnavailable(absl::Status(code, ""))) {
      return absl::UnavailableError(
          absl::StrCat(options_.connect, " cannot be reached: ", reason,
                       "; check the address, that `sluice doctor --listen` runs there, and that a "
                       "firewall lets the port through"));
    }
    return {code, absl::StrCat(options_.connect, ": ", reason)};
  }

  absl::Status Begin();
  void CallBack();
  void Echo();
  void Download(v1::Doctor::Stub* stub);
  void Upload(v1::Doctor::Stub* stub);
  absl::Status End();

  const DoctorClientOptions& options_;
  const net::Transport& transport_;
  const std::unique_ptr<v1::Doctor::Stub> stub_;
  const SteadyClock clock_;
  std::string secret_;
  std::string own_host_;  // As the other machine sees it.
  DoctorFindings findings_;
};

absl::Status Examination::Begin() {
  v1::DoctorBeginRequest request;
  request.mutable_host()->set_software_version(options_.here.version);
  request.mutable_host()->set_descriptors(options_.here.descriptors);
  v1::DoctorBeginReply reply;
  grpc::ClientContext context;
  Prepare(&context, options_.limits.patience);
  if (const grpc::Status begun = stub_->Begin(&context, request, &reply); !begun.ok()) {
    return Failed(begun);
  }
  secret_ = reply.secret().substr(0, kSecretMax);
  // gRPC ends the process if metadata has other characters.
  if (secret_.empty() || !std::all_of(secret_.begin(), secret_.end(), absl::ascii_isalnum)) {
    return absl::DataLossError(
        absl::StrCat(options_.connect, " sent a wrong secret; check which program listens there"));
  }
  own_host_ = net::HostOf(ValidText(reply.peer_address(), kReasonMax));
  findings_.there = {EscapeControls(ValidText(reply.host().software_version(), kDoctorVersionMax)),
                     reply.host().descriptors()};
  return absl::OkStatus();
}

void Examination::CallBack() {
  std::string listen = options_.listen;
  if (listen.empty()) {
    if (!IsAddress(own_host_)) {
      findings_.reached_by_peer =
          absl::UnknownError("the other machine named no address of this one");
      return;
    }
    const bool six = own_host_.find(':') != std::string::npos;
    listen = absl::StrCat(six ? "[" : "", own_host_, six ? "]" : "",
                          options_.connect.substr(options_.connect.rfind(':')));
  }
  NoMethods service;
  const absl::StatusOr<std::unique_ptr<ServerPort>> port =
      ServerPort::Open(listen, transport_, &service);
  if (!port.ok()) {
    findings_.reached_by_peer =
        absl::Status(port.status().code(),
                     absl::StrCat(port.status().message(), " (or give --listen HOST:PORT)"));
    return;
  }
  v1::DoctorCallBackRequest request;
  request.set_port(static_cast<uint32_t>((*port)->port()));
  v1::DoctorCallBackReply reply;
  grpc::ClientContext context;
  Prepare(&context, 2 * options_.limits.patience);
  if (const grpc::Status called = stub_->CallBack(&context, request, &reply); !called.ok()) {
    findings_.reached_by_peer = Failed(called);
  } else if (!reply.error().empty()) {
    findings_.reached_by_peer = absl::UnavailableError(
        absl::StrCat("the other machine says: ", ValidText(reply.error(), kReasonMax)));
  }
}

void Examination::Echo() {
  double least = 0;
  const absl::Time until = clock_.Now() + options_.limits.patience;
  for (int i = 0; i < kEchoes && clock_.Now() < until; ++i) {
    grpc::ClientContext context;
    Prepare(&context, until - clock_.Now());
    v1::DoctorEchoReply reply;
    const absl::Time wall = absl::Now();
    const absl::Time begin = clock_.Now();
    if (!stub_->Echo(&context, {}, &reply).ok()) return;
    const double seconds = absl::ToDoubleSeconds(clock_.Now() - begin);
    if (least > 0 && seconds >= least) continue;
    least = seconds;
    const double middle = absl::ToDoubleSeconds(wall - absl::UnixEpoch()) + seconds / 2;
    const double theirs = SaneFigure(reply.unix_seconds(), 1e12);
    findings_.round_trip_seconds = least;
    findings_.peer_ahead_seconds = theirs - middle;
  }
}

void Examination::Download(v1::Doctor::Stub* stub) {
  grpc::ClientContext context;
  Prepare(&context, options_.limits.measuring + options_.limits.patience);
  RateMeter meter(options_.limits);
  v1::DoctorBlock block;
  const auto reader = stub->Download(&context, {});
  while (!meter.full() && reader->Read(&block)) meter.Add(block.content().size(), clock_.Now());
  context.TryCancel();
  (void)reader->Finish();
  findings_.received_bytes_per_second = meter.bytes_per_second();
}

void Examination::Upload(v1::Doctor::Stub* stub) {
  grpc::ClientContext context;
  Prepare(&context, options_.limits.measuring + options_.limits.patience);
  v1::DoctorUploadReply reply;
  v1::DoctorBlock block;
  block.set_content(std::string(kDoctorBlockBytes, '\0'));
  const auto writer = stub->Upload(&context, &reply);
  // The receiver ends the call. It cannot make this machine send more than twice the bytes.
  uint64_t sent = 0;
  while (sent < 2 * options_.limits.bytes && writer->Write(block)) sent += kDoctorBlockBytes;
  writer->WritesDone();
  if (writer->Finish().ok()) {
    findings_.sent_bytes_per_second = SaneFigure(reply.bytes_per_second(), kRateMax);
  }
}

absl::Status Examination::End() {
  v1::DoctorEndRequest request;
  request.set_upload_bytes_per_second(findings_.sent_bytes_per_second);
  request.set_download_bytes_per_second(findings_.received_bytes_per_second);
  request.set_round_trip_seconds(findings_.round_trip_seconds);
  request.set_listener_ahead_seconds(findings_.peer_ahead_seconds);
  v1::DoctorEndReply reply;
  grpc::ClientContext context;
  Prepare(&context, options_.limits.patience);
  const grpc::Status ended = stub_->End(&context, request, &reply);
  return ended.ok() ? absl::OkStatus() : Failed(ended);
}

}  // namespace

absl::StatusOr<DoctorFindings> ExamineLink(const DoctorClientOptions& options,
                                           const net::Transport& transport) {
  return Examination(options, transport).Run();
}

}  // namespace sluice::cli
