// SPDX-License-Identifier: Apache-2.0
#include "server/shard/result_sink.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/request_fence.h"

namespace sluice::server {

ResultSink::ResultSink(const ShardOptions* options, uint32_t bundles)
    : options_(*options), log_(bundles, options_.first_step, options_.log), versions_(bundles) {}

void ResultSink::Forward(std::shared_ptr<const BundleSum> sum,
                         std::vector<ShardEffect>* out) const {
  out->push_back(BundleSummed{std::move(sum)});
}

std::shared_ptr<const protocol::ExchangeReply> ResultSink::Publish(const BundleWork& work,
                                                                   BundleResult result,
                                                                   Stamp stamp) {
  auto answer = std::make_shared<protocol::ExchangeReply>();
  answer->outcome = protocol::Outcome::kResult;
  answer->step = work.step;
  answer->bundle = work.bundle;
  answer->record.term = options_.term;
  answer->record.step = work.step;
  answer->record.bundle = work.bundle;
  answer->record.generation = stamp.generation;
  answer->record.plan_id = stamp.plan_id;
  answer->record.included = std::move(result.included);
  answer->record.n = result.n;
  answer->record.rate = result.rate;
  answer->results = std::move(result.frames);
  answer->exact = result.exact && answer->record.n > 0;
  answer->record.result_checksum = protocol::BundleChecksum(answer->results);
  uint64_t& version = versions_[work.bundle];
  answer->base_version = version;
  if (answer->record.n > 0) ++version;
  answer->version = version;
  answer->checkpoint_step = stamp.checkpoint_step;
  answer->plan = std::move(stamp.plan);
  answer->open_step = work.step;
  answer->members = std::move(stamp.members);
  log_.Add(answer, stamp.needed_from);
  return answer;
}

absl::Status ResultSink::CheckBase(const protocol::ExchangeRequest& exchange, bool is_next) const {
  const auto before = is_next ? nullptr : log_.Find(exchange.step - 1, exchange.bundle);
  if (exchange.base_version == 0 || (!is_next && before == nullptr)) return absl::OkStatus();
  const uint64_t version = is_next ? versions_[exchange.bundle] : before->version;
  if (exchange.base_version == version) return absl::OkStatus();
  return InvalidRequest(exchange,
                        absl::StrCat("is based on version ", exchange.base_version,
                                     ", but the result before this step was version ", version));
}

}  // namespace sluice::server
