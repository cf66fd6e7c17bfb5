// States of checkpoints: any bytes are an error or a snapshot that is written as those very bytes;
// as they are, and with checksums that fit.
// Input: a file.

#include "tests/protocol/checkpoint/snapshot_property.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  sluice::protocol::CheckAnySnapshot(file);
  sluice::protocol::SealSnapshot(&file);
  sluice::protocol::CheckAnySnapshot(file);
  return 0;
}
