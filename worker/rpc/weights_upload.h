// SPDX-License-Identifier: Apache-2.0
// WeightsUpload: sends one shard's weights of one type to the shard while followers want them, on a
// thread of its own. It repeats calls that break.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "compress/element_type.h"
#include "follow/rpc/weights_hub.h"
#include "follow/weights_version.h"
#include "net/grpc/call_gate.h"
#include "net/grpc/transport.h"
#include "protocol/exchange.h"
#include "sluice/v1/weights.grpc.pb.h"
#include "worker/rpc/membership.h"

namespace sluice::worker {

class WeightsUpload final : public follow::UpdateReader {
 public:
  struct Options {
    protocol::Sender sender;
    uint32_t shard = 0;
    ShardSeat seat;
    compress::ElementType type = compress::ElementType::kBfloat16;
    std::shared_ptr<const net::Transport> transport;
    absl::Duration backoff_min;
    absl::Duration backoff_max;
  };
  // `hub` encodes the updates. It must outlive the upload.
  WeightsUpload(Options options, follow::WeightsHub* hub, const Clock* clock, Logger logger);
  ~WeightsUpload();

  // The next call goes to this process of the shard.
  void GoTo(ShardSeat seat);
  // Returns false while the shard wants updates, and after WeightsHub::Finish until it has the
  // last.
  bool drained() const;
  // Ends the calls. Thread-safe.
  void Cancel();

  void Wake(const std::optional<absl::Status>& end) override;

 private:
  using Stream = grpc::ClientReaderWriterInterface<v1::UploadRequest, v1::UploadReply>;

  void Run();
  // Makes one call.
  grpc::Status Call(v1::WeightsUpload::StubInterface* stub, protocol::Sender sender);
  // Sends updates from `have` on until the call breaks or nothing will follow.
  void SendUpdates(std::optional<follow::WeightsState> have, Stream* stream);
  bool Send(const follow::WeightsUpdate& update, Stream* stream);
  // Waits for Wake. Returns false if the upload was cancelled, or after the last update.
  bool AwaitUpdate();

  const Options options_;
  follow::WeightsHub* const hub_;
  const Logger logger_;
  net::CallGate gate_;
  mutable Mutex mutex_;
  CondVar woken_;
  ShardSeat seat_ ABSL_GUARDED_BY(mutex_);
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;  // The shard asked, and has not ended the call.
  bool awake_ ABSL_GUARDED_BY(mutex_) = false;
  bool last_ ABSL_GUARDED_BY(mutex_) = false;      // No update follows the newest one.
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // The call has sent the last update.
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice::worker
