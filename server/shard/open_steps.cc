// SPDX-License-Identifier: Apache-2.0
#include "server/shard/open_steps.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice::server {

OpenSteps::OpenSteps(const ShardOptions* options, const std::vector<BundleLayout>* bundles,
                     uint64_t step, size_t elements, ShardThreads* threads)
    : options_(*options),
      layouts_(*bundles),
      sums_(elements, threads),
      step_(step),
      open_(bundles->size()),
      next_(bundles->size()),
      closed_(bundles->size()),
      handed_(bundles->size()) {}

uint32_t OpenSteps::LowestOpen() const {
  return static_cast<uint32_t>(std::find(closed_.begin(), closed_.end(), false) - closed_.begin());
}

OpenBundle* OpenSteps::FindOrOpen(uint64_t step, uint32_t bundle, const ClosingRule& rule) {
  std::unique_ptr<OpenBundle>& open = (step == step_ ? open_ : next_)[bundle];
  if (open == nullptr) {
    const BundleLayout& layout = layouts_[bundle];
    open = std::make_unique<OpenBundle>(
        layout.counts, layout.aggregators, static_cast<uint32_t>(options_.incarnations.size()),
        options_.exchange.quorum, &sums_, options_.exchange.needs_contributions());
    rule.AwaitMembers(bundle, step, open.get());
  }
  return open.get();
}

void OpenSteps::AddLate(protocol::ExchangeRequest exchange, uint32_t checksum,
                        const ClosingRule& rule) {
  LateWork work{.exchange = std::move(exchange), .checksum = checksum};
  if (!JoinStep(&work, rule)) late_.push_back(std::move(work));
}

bool OpenSteps::JoinStep(LateWork* work, const ClosingRule& rule) {
  protocol::ExchangeRequest& exchange = work->exchange;
  for (const uint64_t step : {step_, next_step()}) {
    if (IsClosed(step, exchange.bundle) || !layouts_[exchange.bundle].Exchanges(step)) continue;
    FindOrOpen(step, exchange.bundle, rule)
        ->AdmitLate(exchange.sender.rank, exchange.step, work->checksum, exchange.rate,
                    std::move(exchange.frames), exchange.work);
    return true;
  }
  return false;
}

void OpenSteps::AwaitMembers(uint32_t bundle, const ClosingRule& rule) {
  rule.AwaitMembers(bundle, step_, open_[bundle].get());
  rule.AwaitMembers(bundle, next_step(), next_[bundle].get());
}

void OpenSteps::ForgetUnanswered(uint32_t rank) {
  for (const Bundles* const bundles : {&open_, &next_}) {
    for (const std::unique_ptr<OpenBundle>& open : *bundles) {
      if (open != nullptr) open->SetUnanswered(rank, 0);
    }
  }
}

std::unique_ptr<OpenBundle> OpenSteps::Close(uint32_t bundle) {
  Check(!closed_[bundle], "a bundle closes once");
  closed_[bundle] = true;
  ++closed_count_;
  return std::move(open_[bundle]);
}

void OpenSteps::Advance(const ClosingRule& rule) {
  Check(AllClosed(), "a step opens after the one before it");
  step_ = next_step();
  std::swap(open_, next_);
  closed_.assign(closed_.size(), false);
  handed_.assign(handed_.size(), false);
  closed_count_ = 0;
  std::erase_if(late_, [&](LateWork& work) { return JoinStep(&work, rule); });
}

}  // namespace sluice::server
