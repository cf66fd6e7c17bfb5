// SPDX-License-Identifier: Apache-2.0
// DoctorService: the listening end of `sluice doctor`. It serves one peer, and waits until the peer
// has told its figures.
#pragma once

#include <grpcpp/grpcpp.h>

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "cli/doctor/findings.h"
#include "cli/doctor/rate_meter.h"
#include "net/grpc/transport.h"
#include "sluice/v1/doctor.grpc.pb.h"

namespace sluice::cli {

// Metadata of every call after Begin: the secret of the peer.
inline constexpr char kDoctorSecret[] = "sluice-doctor";
inline constexpr size_t kDoctorBlockBytes = 16 << 10;
inline constexpr size_t kDoctorVersionMax = 64;  // Bytes of the other machine's version.

// Returns 0 instead of a figure that is negative, not finite or above `most`. The other machine may
// send anything.
double SaneFigure(double figure, double most);

class DoctorService final : public v1::Doctor::Service {
 public:
  DoctorService(DoctorMachine here, std::shared_ptr<const net::Transport> transport, bool tls,
                const DoctorLimits& limits);

  // Waits until the peer has ended. Returns DEADLINE_EXCEEDED if no peer came within `patience`, or
  // if the peer did not end within the time that all checks may take. Thread-safe.
  absl::StatusOr<DoctorFindings> Wait(absl::Duration patience);

  grpc::Status Begin(grpc::ServerContext* call, const v1::DoctorBeginRequest* request,
                     v1::DoctorBeginReply* reply) override;
  grpc::Status Echo(grpc::ServerContext* call, const v1::DoctorEchoRequest* request,
                    v1::DoctorEchoReply* reply) override;
  grpc::Status Download(grpc::ServerContext* call, const v1::DoctorDownloadRequest* request,
                        grpc::ServerWriter<v1::DoctorBlock>* blocks) override;
  grpc::Status Upload(grpc::ServerContext* call, grpc::ServerReader<v1::DoctorBlock>* blocks,
                      v1::DoctorUploadReply* reply) override;
  grpc::Status CallBack(grpc::ServerContext* call, const v1::DoctorCallBackRequest* request,
                        v1::DoctorCallBackReply* reply) override;
  grpc::Status End(grpc::ServerContext* call, const v1::DoctorEndRequest* request,
                   v1::DoctorEndReply* reply) override;

 private:
  enum Method { kEcho, kDownload, kUpload, kCallBack, kEnd, kMethods };

  // Refuses strangers, and calls beyond the method's number.
  grpc::Status Enter(const grpc::ServerContext& call, Method method);

  const DoctorMachine here_;
  const std::shared_ptr<const net::Transport> transport_;
  const bool tls_;
  const DoctorLimits limits_;
  const std::string secret_;
  Mutex mutex_;
  CondVar changed_;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::array<int, kMethods> calls_ ABSL_GUARDED_BY(mutex_){};
  DoctorFindings findings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::cli
