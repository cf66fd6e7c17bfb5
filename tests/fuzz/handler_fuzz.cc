// SPDX-License-Identifier: Apache-2.0
// Fuzzer for the handlers of gRPC calls, without sockets: messages are converted, checked and
// handled as the services do it. Input: a byte (bit 7: a shard instead of the coordinator; the
// other bits are the job's options), then the events. coordinator_property.h and shard_property.h
// list them.

#include "tests/fuzz/coordinator_property.h"
#include "tests/fuzz/shard_property.h"

namespace sluice::server {
namespace {

constexpr int kEventsMax = 200;

template <typename Property>
void Run(Property* property, FuzzInput* input) {
  for (int i = 0; i < kEventsMax && !input->empty(); ++i) property->Act(input);
}

void CheckHandlers(FuzzInput input) {
  // Protobuf reports texts that are not UTF-8, which are frequent here.
  google::protobuf::SetLogHandler(nullptr);
  const uint8_t kind = input.Byte();
  if ((kind & 0x80) != 0) {
    ShardProperty property(kind & 0x7F);
    Run(&property, &input);
  } else {
    CoordinatorProperty property(kind);
    Run(&property, &input);
  }
}

}  // namespace
}  // namespace sluice::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::server::CheckHandlers({data, size});
  return 0;
}
