// SPDX-License-Identifier: Apache-2.0
// Snapshots that several tests of checkpoints share.
#pragma once

#include <absl/status/statusor.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compress/codec_spec.h"
#include "compress/compressor.h"
#include "protocol/snapshot.h"

namespace sluice::protocol {

inline compress::ChunkConfig SampleChunk(const std::string& spec, size_t count, uint32_t id,
                                         uint32_t rows) {
  compress::ChunkConfig config;
  config.count = count;
  config.spec = compress::ParseCodecSpec(spec).value();
  config.id = id;
  config.tensor = id / 2;
  config.rows = rows;
  return config;
}

// A compressor with several codecs, compensators and groups, after two steps.
inline compress::SavedCompressor SampleCompressor() {
  const std::vector<compress::ChunkConfig> chunks = {
      SampleChunk("topk:25%+int4", 8, 0, 0),    SampleChunk("topk:25%+int4", 5, 1, 0),
      SampleChunk("powersgd:1", 12, 2, 3),      SampleChunk("none", 3, 3, 0),
      SampleChunk("topk:50%/dgc:0.9", 6, 4, 0), SampleChunk("int8/ef21", 7, 6, 0),
      SampleChunk("topk:25%+int4", 4, 8, 0)};
  compress::Compressor compressor(chunks, {.seed = 3, .sender = 1});
  for (uint64_t step = 1; step <= 2; ++step) {
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      std::vector<float> gradient(chunks[chunk].count);
      for (size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = 0.25f * static_cast<float>((7 * i + 3 * chunk + step) % 11) - 1.0f;
      }
      std::vector<std::byte> frame;
      EXPECT_TRUE(compressor.Encode(chunk, step, gradient, &frame).ok());
      if (compressor.observes(chunk)) compressor.Observe(chunk, frame);
    }
    compressor.EndStep(step);
  }
  return compressor.Save();
}

inline ShardSnapshot SampleShard() {
  ShardSnapshot snapshot;
  snapshot.job_uid = 0x0123456789ABCDEF;
  snapshot.term = 2;
  snapshot.step = 1000;
  snapshot.shard = 1;
  snapshot.versions = {1000, 999, 1000};
  snapshot.downlink = SampleCompressor();
  snapshot.aggregators = {{}, {{"momentum", {1.5f, -2.0f}}, {"zeta", {0.0f}}}, {}};
  return snapshot;
}

inline WorkerSnapshot SampleWorker() {
  WorkerSnapshot snapshot;
  snapshot.job_uid = 0x0123456789ABCDEF;
  snapshot.term = 2;
  snapshot.step = 1000;
  snapshot.rank = 3;
  snapshot.uplink = SampleCompressor();
  snapshot.trainer = std::string("model \0 and optimizer", 21);
  return snapshot;
}

}  // namespace sluice::protocol
