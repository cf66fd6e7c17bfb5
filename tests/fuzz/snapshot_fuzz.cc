// SPDX-License-Identifier: Apache-2.0
// Fuzzer for states of checkpoints: any bytes must give either an error or a snapshot whose
// serialization gives the same bytes. The property must hold for the unchanged bytes and for bytes
// with valid checksums. Input: a file.

#include "tests/protocol/checkpoint/snapshot_property.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  sluice::protocol::CheckAnySnapshot(file);
  sluice::protocol::SealSnapshot(&file);
  sluice::protocol::CheckAnySnapshot(file);
  return 0;
}
