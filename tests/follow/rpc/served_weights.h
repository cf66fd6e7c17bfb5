// SPDX-License-Identifier: Apache-2.0
// Weights of a made-up job that a hub serves on a port of this machine.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "follow/model_assembly.h"
#include "follow/rpc/weights_hub.h"
#include "follow/rpc/weights_service.h"
#include "follow/typed_weights.h"
#include "protocol/layout.h"
#include "protocol/weights.h"

namespace sluice::follow {

// One matrix and one vector, in as many chunks as it takes for both shards to have some.
inline protocol::WeightsDescription SampleJob(uint64_t job_uid = 7, uint32_t shards = 1) {
  return {.job = "sample",
          .job_uid = job_uid,
          .table = {{.name = "m", .shape = {40, 50}, .strides = {}},
                    {.name = "v", .shape = {1000}, .strides = {}}},
          .layout = {.chunk_elements = 256, .bundle_elements = 256},
          .whole_rows = {},
          .addresses = std::vector<std::string>(shards),
          .types = {compress::ElementType::kBfloat16}};
}

// The model's values at a step. Each step changes some of them.
inline std::vector<float> ValuesAt(uint64_t step) {
  std::vector<float> values(3000);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i) + (i % 50 == 0 ? static_cast<float>(step) : 0);
  }
  return values;
}

inline std::vector<std::byte> TypedModelAt(uint64_t step) {
  const std::vector<float> values = ValuesAt(step);
  std::vector<std::byte> bytes(values.size() * sizeof(uint16_t));
  WriteTyped(compress::ElementType::kBfloat16, values, absl::MakeSpan(bytes));
  return bytes;
}

// Returns a shard's weights at a step.
inline std::vector<std::byte> TypedShardAt(const ModelParts& parts, size_t shard, uint64_t step) {
  const std::vector<float> values = ValuesAt(step);
  std::vector<float> own;
  for (const TensorPiece& piece : parts.shards[shard]) {
    const size_t begin = (piece.tensor == 0 ? 0 : 2000) + piece.offset;
    own.insert(own.end(), values.begin() + static_cast<std::ptrdiff_t>(begin),
               values.begin() + static_cast<std::ptrdiff_t>(begin + piece.count));
  }
  std::vector<std::byte> bytes(own.size() * sizeof(uint16_t));
  WriteTyped(compress::ElementType::kBfloat16, own, absl::MakeSpan(bytes));
  return bytes;
}

// Serves a hub until it is destroyed. The port is free if it is 0. `clock` must outlive the hub,
// whose thread reads it: the thread sanitizer does not see that gRPC waits for the calls.
class HubServer {
 public:
  HubServer(WeightsHub* hub, WeightsService::Describer describe, const Clock* clock, int port = 0)
      : service_(hub, std::move(describe), net::Transport::Plain(), clock) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
  }
  ~HubServer() { server_->Shutdown(std::chrono::system_clock::now()); }

  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  WeightsService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace sluice::follow
