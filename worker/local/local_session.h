// LocalSession: a Session for a job of one process. It runs both codecs with their error feedback,
// as a worker and its shards would, and sends nothing.
#pragma once

#include <memory>

#include "protocol/compression_spec.h"
#include "worker/core/session.h"

namespace sluice::worker {

struct LocalSessionOptions {
  protocol::CompressionSpec compression;
  uint64_t buffer_sync_interval = protocol::kBufferSyncInterval;  // Steps.
};

// Does not support updates on shards or checkpoints. Traffic counts the bytes of frames.
std::unique_ptr<Session> MakeLocalSession(LocalSessionOptions options);

}  // namespace sluice::worker
