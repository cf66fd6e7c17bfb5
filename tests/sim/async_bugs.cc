// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/async_bugs.h"

#include <vector>

#include "base/check.h"
#include "compress/codec_table.h"
#include "compress/frame.h"

namespace sluice {
namespace {

std::vector<std::byte> BytesOf(const std::string& text) {
  const absl::Span<const std::byte> bytes = protocol::FrameBytes(text);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

protocol::ExchangeRequest Forged(SurvivalBug bug, const protocol::ExchangeRequest& exchange,
                                 bool is_new) {
  protocol::ExchangeRequest forged = exchange;
  if (bug == SurvivalBug::kRepeatCountsAgain && !is_new) ++forged.step;
  if (bug == SurvivalBug::kPlanNotPassedOn) forged.plan = nullptr;
  return forged;
}

std::shared_ptr<const protocol::ExchangeReply> AnswerToLost(
    SurvivalBug bug, const protocol::ExchangeRequest& exchange, bool is_new) {
  if (bug != SurvivalBug::kContributionLost || !is_new || exchange.skip || exchange.step != 5) {
    return nullptr;
  }
  auto answer = std::make_shared<protocol::ExchangeReply>();
  answer->outcome = protocol::Outcome::kResult;
  answer->step = exchange.step;
  answer->bundle = exchange.bundle;
  answer->record.step = exchange.step;
  answer->record.bundle = exchange.bundle;
  answer->record.term = exchange.sender.term;
  answer->record.n = 1;
  answer->record.included = {
      {exchange.sender.rank, exchange.step, protocol::BundleChecksum(exchange), false}};
  answer->base_version = answer->version = exchange.base_version;
  return answer;
}

std::shared_ptr<const protocol::ExchangeReply> Forged(
    SurvivalBug bug, uint32_t rank, std::shared_ptr<const protocol::ExchangeReply> answer) {
  auto forged = std::make_shared<protocol::ExchangeReply>(*answer);
  if (bug == SurvivalBug::kNameWithheld && rank == 1 && answer->checkpoint_step >= answer->step) {
    forged->checkpoint_step = 0;
  }
  if (bug == SurvivalBug::kPlanWithheld && rank == 0) forged->plan = nullptr;
  const bool several =
      bug == SurvivalBug::kPublicationLost || bug == SurvivalBug::kPublicationsMerged;
  if (!several || answer->exact || answer->results.empty()) return forged;
  for (std::string& chunk : forged->results) {
    const std::vector<std::byte> bytes = BytesOf(chunk);
    absl::Span<const std::byte> rest = bytes;
    const absl::Span<const std::byte> first = compress::PopFrame(&rest);
    if (rest.empty()) continue;
    if (bug == SurvivalBug::kPublicationLost) {
      chunk.erase(0, first.size());
      continue;
    }
    std::vector<float> sum(compress::ReadFrameHeader(first)->count);
    compress::AddValidFrames(bytes, absl::MakeSpan(sum));
    std::vector<std::byte> merged;
    const std::unique_ptr<compress::Codec> exact =
        compress::MakeCodec({.codec = compress::CodecId::kNone});
    Check(compress::EncodeFrame(*exact, {.gradient = sum, .residual = {}}, &merged).ok(),
          "sums are finite");
    chunk.assign(reinterpret_cast<const char*>(merged.data()), merged.size());
  }
  forged->record.result_checksum = protocol::BundleChecksum(forged->results);
  return forged;
}

}  // namespace sluice
