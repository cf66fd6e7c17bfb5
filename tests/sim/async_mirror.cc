// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/async_mirror.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/frame.h"

namespace sluice {
namespace {

bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

std::string PlaceIn(uint32_t rank, uint64_t step, uint32_t bundle) {
  return absl::StrCat("rank ", rank, ", step ", step, ", bundle ", bundle);
}

std::vector<float> Decoded(const protocol::ExchangeRequest& exchange,
                           const std::vector<uint32_t>& counts) {
  std::vector<float> all;
  for (size_t i = 0; i < counts.size(); ++i) {
    std::vector<float> chunk(counts[i]);
    const absl::Status decoded = compress::DecodeAddFrame(
        protocol::FrameBytes(exchange.frames.at(i)), absl::MakeSpan(chunk));
    Check(decoded.ok(), decoded.message());
    all.insert(all.end(), chunk.begin(), chunk.end());
  }
  return all;
}

}  // namespace

AsyncMirror::AsyncMirror(Options options) : options_(std::move(options)) {
  uint32_t locals = 0;
  for (const protocol::Bundle& bundle : options_.layout->bundles[options_.shard]) {
    BundleMirror& mirror = bundles_.emplace_back();
    mirror.buffers = bundle.buffers;
    mirror.first_local = locals;
    locals += static_cast<uint32_t>(bundle.chunks.size());
    for (const uint32_t id : bundle.chunks) {
      mirror.counts.push_back(options_.layout->chunks[id].count);
    }
    mirror.ranks.resize(options_.ranks);
  }
}

AsyncMirror AsyncMirror::AtCheckpoint() const {
  AsyncMirror saved = *this;
  for (BundleMirror& bundle : saved.bundles_) {
    if (bundle.versions.empty()) continue;
    bundle.versions.erase(bundle.versions.begin(), std::prev(bundle.versions.end()));
    bundle.oldest = bundle.versions.begin()->first;
  }
  return saved;
}

void AsyncMirror::Continue(uint64_t first_step, const std::vector<uint64_t>& incarnations) {
  options_.first_step = first_step;
  for (BundleMirror& bundle : bundles_) {
    if (bundle.ranks.size() != incarnations.size()) {
      bundle.ranks.assign(incarnations.size(), {.next = first_step});
    }
    for (size_t rank = 0; rank < incarnations.size(); ++rank) {
      if (!bundle.ranks[rank].awaited) bundle.ranks[rank] = {.next = first_step};
    }
  }
  holders_.clear();
  SetHolders(incarnations);
}

void AsyncMirror::SetHolders(const std::vector<uint64_t>& incarnations) {
  const bool begins = holders_.empty();
  for (BundleMirror& bundle : bundles_) {
    for (size_t rank = 0; rank < incarnations.size() && options_.elastic; ++rank) {
      const bool leaves = begins ? incarnations[rank] == 0 : incarnations[rank] != holders_[rank];
      if (leaves) bundle.ranks[rank] = {.begun = false, .awaited = false};
    }
    FindSlowest(&bundle);
  }
  holders_ = incarnations;
}

void AsyncMirror::FindSlowest(BundleMirror* bundle) {
  bool any = false;
  uint64_t slowest = 0;
  for (const RankMirror& rank : bundle->ranks) {
    if (!rank.awaited) continue;
    slowest = any ? std::min(slowest, rank.next) : rank.next;
    any = true;
  }
  if (any) bundle->slowest = slowest;
}

bool AsyncMirror::IsNew(const protocol::ExchangeRequest& exchange) const {
  const BundleMirror& bundle = bundles_[exchange.bundle];
  const RankMirror& rank = bundle.ranks[exchange.sender.rank];
  if (rank.begun) return exchange.step == rank.next;
  return exchange.step >= options_.first_step && exchange.step <= bundle.slowest;
}

void AsyncMirror::Begin(const protocol::ExchangeRequest& exchange, BundleMirror* bundle) const {
  bundle->parameters = Decoded(exchange, bundle->counts);
  bundle->slots.assign(server::UpdateRule::Create(options_.rule)->slots(),
                       std::vector<float>(bundle->parameters.size()));
  bundle->versions[1] = {bundle->parameters, 0};
}

void AsyncMirror::Update(const protocol::ExchangeRequest& exchange, BundleMirror* bundle) const {
  const uint64_t base = exchange.base_version == 0 ? bundle->oldest : exchange.base_version;
  const auto made_on = bundle->versions.find(base);
  // CheckHeld reports a version that never existed.
  const uint64_t before = made_on == bundle->versions.end() ? 0 : made_on->second.updates;
  Entry entry{.rank = exchange.sender.rank,
              .step = exchange.step,
              .checksum = protocol::BundleChecksum(exchange.frames),
              .weight = exchange.weight,
              .rate = exchange.rate,
              .staleness = bundle->updates.size() - before};
  if (options_.staleness_aware_lr) entry.rate /= static_cast<float>(1 + entry.staleness);
  bundle->updates.push_back(entry);
  std::vector<float> gradient = Decoded(exchange, bundle->counts);
  for (float& value : gradient) value /= static_cast<float>(exchange.weight);
  std::vector<absl::Span<float>> slots(bundle->slots.begin(), bundle->slots.end());
  const server::UpdateRule rule = *server::UpdateRule::Create(options_.rule);
  rule.Apply(bundle->updates.size(), entry.rate, rule.momentum(), gradient,
             absl::MakeSpan(bundle->parameters), slots);
}

std::string AsyncMirror::Took(const protocol::ExchangeRequest& exchange,
                              const server::AsyncShard& shard) {
  BundleMirror& bundle = bundles_[exchange.bundle];
  if (IsNew(exchange)) {
    RankMirror& rank = bundle.ranks[exchange.sender.rank];
    rank = {.next = exchange.step + 1, .awaited = rank.awaited};
    if (rank.next >= bundle.slowest) rank.awaited = true;
    FindSlowest(&bundle);
    if (exchange.step == 0) {
      if (!exchange.skip) Begin(exchange, &bundle);
    } else if (!exchange.skip) {
      Update(exchange, &bundle);
    }
  }
  const std::string wrong = CheckState(exchange.bundle, shard);
  if (wrong.empty()) return "";
  return absl::StrCat(PlaceIn(exchange.sender.rank, exchange.step, exchange.bundle), ": ", wrong);
}

std::string AsyncMirror::CheckState(uint32_t index, const server::AsyncShard& shard) {
  BundleMirror& bundle = bundles_[index];
  if (bundle.buffers || bundle.parameters.empty()) return "";
  const uint64_t made = shard.replica().updates(bundle.first_local);
  if (made > bundle.updates.size()) return "was counted again";
  if (made < bundle.updates.size()) return "was lost";
  const uint64_t version = shard.version(index);
  std::vector<float> published;
  for (size_t i = 0; i < bundle.counts.size(); ++i) {
    const auto part = shard.replica().published(bundle.first_local + i);
    published.insert(published.end(), part.begin(), part.end());
  }
  if (version > bundle.versions.rbegin()->first) {
    if (version != made + 1) return absl::StrCat("version ", version, " is misnumbered");
    bundle.versions[version] = {published, made};
  }
  if (!SameBits(published, bundle.versions.rbegin()->second.values)) {
    return absl::StrCat("what is published is not version ", version);
  }
  return Compare(bundle, shard);
}

std::string AsyncMirror::Compare(const BundleMirror& bundle,
                                 const server::AsyncShard& shard) const {
  absl::Span<const float> rest = bundle.parameters;
  for (size_t i = 0; i < bundle.counts.size(); ++i) {
    if (!SameBits(shard.replica().parameters(bundle.first_local + i),
                  rest.first(bundle.counts[i]))) {
      return absl::StrCat("other parameters after ", bundle.updates.size(), " updates");
    }
    rest.remove_prefix(bundle.counts[i]);
  }
  return "";
}

std::string AsyncMirror::CheckResult(uint32_t rank, const protocol::ExchangeReply& answer) const {
  const BundleMirror& bundle = bundles_[answer.bundle];
  const std::string place = PlaceIn(rank, answer.step, answer.bundle);
  if (answer.step == 0) {
    return answer.record.n == 1 ? "" : absl::StrCat(place, ": parameters of nobody");
  }
  if (answer.record.included.size() != 1 || answer.record.included[0].rank != rank) {
    return absl::StrCat(place, ": a record of others");
  }
  const protocol::Included& included = answer.record.included[0];
  if (included.skipped != (answer.record.n == 0)) return absl::StrCat(place, ": a wrong count");
  if (!bundle.buffers && !bundle.versions.contains(answer.version)) {
    return absl::StrCat(place, ": told of version ", answer.version, ", which never was");
  }
  if (answer.record.n == 0) return "";
  const uint64_t base = answer.base_version == 0 ? bundle.oldest : answer.base_version;
  const auto made_on = bundle.versions.find(base);
  if (made_on == bundle.versions.end()) {
    return absl::StrCat(place, ": is based on version ", base, ", which never was");
  }
  const uint64_t at = made_on->second.updates + answer.staleness;
  if (at < bundle.updates.size()) {
    const Entry& entry = bundle.updates[at];
    if (entry.rank == rank && entry.step == answer.step && entry.checksum == included.checksum &&
        entry.weight == included.weight && entry.weight == answer.record.n &&
        entry.rate == answer.record.rate && entry.staleness == answer.staleness) {
      return "";
    }
  }
  return absl::StrCat(place, ": is said to be update ", at, " with staleness ", answer.staleness,
                      ", which is another's");
}

std::string AsyncMirror::CheckHeld(uint32_t rank, uint32_t bundle, uint64_t version,
                                   const std::vector<float>& values) const {
  const auto found = bundles_[bundle].versions.find(version);
  if (found != bundles_[bundle].versions.end() && SameBits(found->second.values, values)) return "";
  return absl::StrCat("rank ", rank, " does not hold version ", version, " of bundle ", bundle);
}

std::string AsyncMirror::CheckClocks(uint64_t step, const std::vector<uint64_t>& clocks) const {
  std::vector<uint64_t> wanted;
  for (const BundleMirror& bundle : bundles_) {
    for (const RankMirror& rank : bundle.ranks) {
      wanted.push_back(rank.awaited ? rank.next - 1 : step);
    }
  }
  return clocks == wanted ? "" : "a snapshot has other clocks";
}

uint64_t AsyncMirror::LeastClock(uint32_t bundle) const {
  const uint64_t slowest = bundles_[bundle].slowest;
  return slowest == 0 ? 0 : slowest - 1;
}

uint64_t AsyncMirror::updates() const {
  uint64_t updates = 0;
  for (const BundleMirror& bundle : bundles_) updates += bundle.updates.size();
  return updates;
}

}  // namespace sluice
