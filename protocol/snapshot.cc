// SPDX-License-Identifier: Apache-2.0
#include "protocol/snapshot.h"

#include "absl/strings/str_cat.h"

namespace sluice::protocol {

std::string ShardPartName(uint32_t shard, uint32_t term) {
  return absl::StrCat("shard-", shard, "-term-", term, ".state");
}

std::string WorkerPartName(uint32_t rank, uint32_t term) {
  return absl::StrCat("worker-", rank, "-term-", term, ".state");
}

}  // namespace sluice::protocol
