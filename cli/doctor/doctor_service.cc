// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/doctor_service.h"

#include <atomic>
#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/text.h"
#include "net/grpc/host_port.h"
#include "net/grpc/port_probe.h"

namespace sluice::cli {
namespace {

constexpr std::array<int, 5> kCallsMax = {100, 1, 1, 1, 1};  // By Method.
constexpr double kFigureMax = 1e15;
constexpr double kSecondsMax = 1e10;

std::string NewSecret() {
  std::random_device device;
  return absl::StrFormat("%08x%08x%08x%08x", device(), device(), device(), device());
}

}  // namespace

double SaneFigure(double figure, double most) {
  return std::isfinite(figure) && figure >= 0 && figure <= most ? figure : 0;
}

DoctorService::DoctorService(DoctorMachine here, std::shared_ptr<const net::Transport> transport,
                             bool tls, const DoctorLimits& limits)
    : here_(std::move(here)),
      transport_(std::move(transport)),
      tls_(tls),
      limits_(limits),
      secret_(NewSecret()) {}

absl::StatusOr<DoctorFindings> DoctorService::Wait(absl::Duration patience) {
  const SteadyClock clock;
  // The sum of the peer's time limits (doctor_client.cc), and some more.
  const absl::Duration all_checks = 2 * limits_.measuring + 8 * limits_.patience;
  absl::Time until = clock.Now() + patience;
  bool begun = false;
  MutexLock lock(&mutex_);
  while (!ended_) {
    if (begun_ && !begun) {
      begun = true;
      until = clock.Now() + all_checks;
    }
    const absl::Duration left = until - clock.Now();
    if (left <= absl::ZeroDuration()) {
      if (!begun) {
        return absl::DeadlineExceededError(absl::StrCat(
            "no machine began within ", absl::FormatDuration(patience),
            "; check that `sluice doctor --connect` runs on the other one, with this address, and "
            "that no firewall blocks the port"));
      }
      return absl::DeadlineExceededError(
          absl::StrCat(findings_.peer, " began, and did not end within ",
                       absl::FormatDuration(all_checks), "; see its own output"));
    }
    changed_.WaitFor(&mutex_, left);
  }
  return findings_;
}

grpc::Status DoctorService::Enter(const grpc::ServerContext& call, Method method) {
  if (grpc::Status may = transport_->MayCall(call, std::nullopt); !may.ok()) return may;
  const auto found = call.client_metadata().find(kDoctorSecret);
  const bool known = found != call.client_metadata().end() &&
                     absl::string_view(found->second.data(), found->second.size()) == secret_;
  MutexLock lock(&mutex_);
  if (!known || !begun_) return {grpc::StatusCode::PERMISSION_DENIED, "call Begin first"};
  if (++calls_[method] > kCallsMax[method]) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "this check was made already"};
  }
  return grpc::Status::OK;
}

grpc::Status DoctorService::Begin(grpc::ServerContext* call, const v1::DoctorBeginRequest* request,
                                  v1::DoctorBeginReply* reply) {
  if (grpc::Status may = transport_->MayCall(*call, std::nullopt); !may.ok()) return may;
  const std::string peer = net::AddressOfPeer(call->peer());
  MutexLock lock(&mutex_);
  if (begun_) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "it checks another machine; start it again"};
  }
  begun_ = true;
  findings_.peer = peer;
  findings_.here = here_;
  findings_.there = {
      EscapeControls(ValidText(request->host().software_version(), kDoctorVersionMax)),
      request->host().descriptors()};
  findings_.reached_by_peer = absl::OkStatus();
  findings_.reaches_peer = absl::UnknownError("the other machine did not ask for it");
  reply->mutable_host()->set_software_version(here_.version);
  reply->mutable_host()->set_descriptors(here_.descriptors);
  reply->set_secret(secret_);
  reply->set_peer_address(peer);
  changed_.SignalAll();
  return grpc::Status::OK;
}

grpc::Status DoctorService::Echo(grpc::ServerContext* call,
                                 const v1::DoctorEchoRequest* /*request*/,
                                 v1::DoctorEchoReply* reply) {
  if (grpc::Status may = Enter(*call, kEcho); !may.ok()) return may;
  reply->set_unix_seconds(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  return grpc::Status::OK;
}

grpc::Status DoctorService::Download(grpc::ServerContext* call,
                                     const v1::DoctorDownloadRequest* /*request*/,
                                     grpc::ServerWriter<v1::DoctorBlock>* blocks) {
  if (grpc::Status may = Enter(*call, kDownload); !may.ok()) return may;
  const SteadyClock clock;
  const absl::Time until = clock.Now() + limits_.measuring + limits_.patience;
  v1::DoctorBlock block;
  block.set_content(std::string(kDoctorBlockBytes, '\0'));
  for (uint64_t sent = 0; sent < limits_.bytes && clock.Now() < until; sent += kDoctorBlockBytes) {
    if (!blocks->Write(block)) break;
  }
  return grpc::Status::OK;
}

grpc::Status DoctorService::Upload(grpc::ServerContext* call,
                                   grpc::ServerReader<v1::DoctorBlock>* blocks,
                                   v1::DoctorUploadReply* reply) {
  if (grpc::Status may = Enter(*call, kUpload); !may.ok()) return may;
  const SteadyClock clock;
  RateMeter meter(limits_);
  v1::DoctorBlock block;
  while (!meter.full() && blocks->Read(&block)) meter.Add(block.content().size(), clock.Now());
  reply->set_bytes_per_second(meter.bytes_per_second());
  return grpc::Status::OK;
}

grpc::Status DoctorService::CallBack(grpc::ServerContext* call,
                                     const v1::DoctorCallBackRequest* request,
                                     v1::DoctorCallBackReply* reply) {
  if (grpc::Status may = Enter(*call, kCallBack); !may.ok()) return may;
  const std::string peer = net::AddressOfPeer(call->peer());
  if (peer.empty() || request->port() == 0 || request->port() > 65535) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "not a port of this peer"};
  }
  // Only the peer's own address, so that no machine can make this one connect elsewhere.
  const net::PortProbe probe(peer, static_cast<int>(request->port()), tls_);
  const std::atomic<bool> stop = false;
  const absl::Status asked = probe.Ask(limits_.patience, stop);
  if (!asked.ok()) reply->set_error(absl::StrCat(probe.name(), " ", asked.message()));
  MutexLock lock(&mutex_);
  findings_.reaches_peer =
      asked.ok() ? absl::OkStatus() : absl::Status(asked.code(), reply->error());
  return grpc::Status::OK;
}

grpc::Status DoctorService::End(grpc::ServerContext* call, const v1::DoctorEndRequest* request,
                                v1::DoctorEndReply* /*reply*/) {
  if (grpc::Status may = Enter(*call, kEnd); !may.ok()) return may;
  const double ahead = request->listener_ahead_seconds();
  MutexLock lock(&mutex_);
  findings_.received_bytes_per_second = SaneFigure(request->upload_bytes_per_second(), kFigureMax);
  findings_.sent_bytes_per_second = SaneFigure(request->download_bytes_per_second(), kFigureMax);
  findings_.round_trip_seconds = SaneFigure(request->round_trip_seconds(), kSecondsMax);
  findings_.peer_ahead_seconds =
      ahead < 0 ? SaneFigure(-ahead, kSecondsMax) : -SaneFigure(ahead, kSecondsMax);
  ended_ = true;
  changed_.SignalAll();
  return grpc::Status::OK;
}

}  // namespace sluice::cli
