// SPDX-License-Identifier: Apache-2.0
#include "server/shard/result_log.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::server {
namespace {

TEST(KeptBytes, CountsTheRecordTheFramesAndTheirStrings) {
  protocol::ExchangeReply answer;
  const uint64_t empty = KeptBytes(answer);
  EXPECT_EQ(empty, sizeof(answer));
  answer.record.included.resize(3);
  const uint64_t with_record = KeptBytes(answer);
  EXPECT_EQ(with_record, empty + 3 * sizeof(protocol::Included));
  answer.results = {std::string(100, 'a'), std::string(50, 'b')};
  EXPECT_EQ(KeptBytes(answer), with_record + 2 * sizeof(std::string) + 150);
}

}  // namespace
}  // namespace sluice::server
