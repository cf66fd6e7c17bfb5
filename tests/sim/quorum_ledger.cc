// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/quorum_ledger.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/frame.h"
#include "server/shard/contribution_merge.h"
#include "tests/sim/sim_data.h"

namespace sluice {
namespace {

std::string QuorumLedgerName(uint64_t step, uint32_t shard, uint32_t bundle) {
  return absl::StrCat("step ", step, ", shard ", shard, ", bundle ", bundle);
}

bool IsSame(const compress::SavedCompressor& a, const compress::SavedCompressor& b) {
  return a.chunks == b.chunks && a.groups == b.groups;
}

}  // namespace

QuorumLedger::QuorumLedger(const SurvivalOptions& options, const protocol::TensorTable& table,
                           const protocol::Layout& layout)
    : options_(options), table_(table), layout_(layout) {}

QuorumLedger::ShardModel QuorumLedger::MakeModel(uint32_t shard) const {
  ShardModel model;
  const protocol::CompressionSpec& compression = options_.compression;
  const std::vector<compress::ChunkConfig> uplinks =
      protocol::ChunkConfigs(compression, table_, layout_, protocol::Direction::kUplink);
  std::vector<compress::ChunkConfig> downlinks =
      protocol::ChunkConfigs(compression, table_, layout_, protocol::Direction::kDownlink);
  std::vector<uint32_t> counts;
  std::vector<compress::ChunkConfig> own;
  for (const protocol::Bundle& bundle : layout_.bundles[shard]) {
    for (const uint32_t id : bundle.chunks) {
      if (options_.rule.has_value()) {
        downlinks[id].spec.compensator = {.id = compress::CompensatorId::kNone};
      }
      own.push_back(downlinks[id]);
      counts.push_back(layout_.chunks[id].count);
      model.aggregators[id] = compress::MakeAggregator(uplinks[id], options_.ranks);
    }
  }
  model.base = own;
  model.downlink.emplace(
      own, compress::Compressor::Options{.seed = compression.seed,
                                         .sender = compress::Compressor::kShardSender});
  if (options_.rule.has_value()) {
    model.replica.emplace(*server::UpdateRule::Create(*options_.rule), counts);
  }
  return model;
}

protocol::ShardSnapshot QuorumLedger::Save(uint32_t shard, ShardModel* model) const {
  protocol::ShardSnapshot saved;
  saved.downlink = model->downlink->Save();
  if (model->coded_by > 0) saved.plans = {plans_.at(model->coded_by)};
  size_t local = 0;
  for (const protocol::Bundle& bundle : layout_.bundles[shard]) {
    for (const uint32_t id : bundle.chunks) {
      saved.aggregators.push_back(compress::SaveFields(model->aggregators[id]->State()));
      if (model->replica.has_value()) saved.replica.push_back(model->replica->Save(local));
      ++local;
    }
  }
  return saved;
}

void QuorumLedger::Restore(const protocol::ShardSnapshot& snapshot, uint32_t shard,
                           ShardModel* model) const {
  if (!snapshot.plans.empty()) CodeBy(snapshot.plans[0].id, model);
  Check(model->downlink->Restore(snapshot.downlink).ok(), "what was saved is restored");
  size_t local = 0;
  for (const protocol::Bundle& bundle : layout_.bundles[shard]) {
    for (const uint32_t id : bundle.chunks) {
      Check(compress::RestoreFields(snapshot.aggregators[local], model->aggregators[id]->State())
                .ok(),
            "what was saved is restored");
      if (model->replica.has_value()) {
        Check(model->replica->Restore(local, snapshot.replica[local]).ok(), "as above");
      }
      ++local;
    }
  }
}

void QuorumLedger::Begin(uint32_t term, uint32_t written_in_term, uint64_t step) {
  if (terms_.contains(term)) return;
  Term& begun = terms_[term];
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    begun.shards.push_back(MakeModel(shard));
    begun.shards[shard].step = step == 0 ? (HasStepZero(options_) ? 0 : 1) : step + 1;
    if (step == 0) continue;
    const auto written = written_.find({written_in_term, step, shard});
    if (written == written_.end()) {
      return Violate(absl::StrCat("term ", term, " continues from step ", step, " of term ",
                                  written_in_term, ", which shard ", shard, " has not written"));
    }
    Restore(written->second, shard, &begun.shards[shard]);
  }
  const auto hash = hashes_.find({written_in_term, step});
  if (step > 0 && hash != hashes_.end()) hashes_[{term, step}] = hash->second;
}

void QuorumLedger::Sent(uint32_t shard, const protocol::ExchangeRequest& exchange) {
  const auto term = terms_.find(exchange.sender.term);
  if (term == terms_.end() || exchange.keys_only) return;
  const uint32_t rank = exchange.sender.rank;
  const uint32_t checksum = protocol::BundleChecksum(exchange.frames);
  const auto [at, first] = term->second.work.try_emplace(
      {shard, exchange.bundle, rank, exchange.step, exchange.sender.incarnation},
      Work{.frames = exchange.frames,
           .skip = exchange.skip,
           .checksum = checksum,
           .made_from = exchange.work,
           .in_step = {}});
  if (first || (at->second.skip == exchange.skip && at->second.checksum == checksum)) return;
  Violate(absl::StrCat("rank ", rank, " sends other bytes for ",
                       QuorumLedgerName(exchange.step, shard, exchange.bundle)));
}

void QuorumLedger::Members(uint32_t term, const std::vector<uint64_t>& incarnations) {
  terms_[term].members = incarnations;
}

// Finds the work that an `included` entry names. If a rank had several holders, the checksum tells
// which one sent it.
QuorumLedger::Work* QuorumLedger::FindWork(Term* term, uint32_t shard, uint32_t bundle,
                                           const protocol::Included& included) {
  Work* found = nullptr;
  const WorkKey first{shard, bundle, included.rank, included.origin_step, 0};
  for (auto at = term->work.lower_bound(first); at != term->work.end(); ++at) {
    const auto& [of_shard, of_bundle, rank, step, incarnation] = at->first;
    if (of_shard != shard || of_bundle != bundle || rank != included.rank ||
        step != included.origin_step) {
      break;
    }
    Work& work = at->second;
    if (work.checksum != included.checksum || work.skip != included.skipped) continue;
    found = &work;
    if (!work.in_step.has_value()) break;
  }
  return found;
}

// Returns the rate from the lowest rank with work for the step itself, or from the first late work
// if there is none.
float QuorumLedger::RateOf(const protocol::ClosingRecord& record) const {
  uint64_t step = 0;
  for (const protocol::Included& included : record.included) {
    if (included.skipped) continue;
    if (included.origin_step == record.step) return SimRate(record.step);
    if (step == 0) step = included.origin_step;
  }
  return SimRate(step);
}

bool QuorumLedger::CheckRecord(Term* term, uint32_t shard, const protocol::ExchangeReply& answer) {
  const protocol::ClosingRecord& record = answer.record;
  const std::string name = QuorumLedgerName(record.step, shard, record.bundle);
  uint32_t n = 0;
  uint32_t own = 0;
  std::pair<uint32_t, uint64_t> before = {0, 0};
  for (const protocol::Included& included : record.included) {
    const std::pair<uint32_t, uint64_t> place = {included.rank, included.origin_step};
    if (&included != record.included.data() && place <= before) {
      Violate(absl::StrCat(name, ": its record is out of order"));
      return false;
    }
    before = place;
    Work* const work = FindWork(term, shard, record.bundle, included);
    if (work == nullptr) {
      Violate(absl::StrCat(name, ": includes what rank ", included.rank, " has not sent for step ",
                           included.origin_step));
      return false;
    }
    if (work->in_step.has_value()) {
      Violate(absl::StrCat(name, ": rank ", included.rank, "'s work of step ", included.origin_step,
                           " is in step ", *work->in_step, " too"));
      return false;
    }
    work->in_step = record.step;
    if (!included.skipped) ++n;
    if (included.origin_step == record.step) {
      ++own;
    } else {
      ++late_;
    }
  }
  if (n > 0 && !IsEncoded(layout_, record.step, layout_.bundles[shard][record.bundle])) {
    Violate(absl::StrCat(name, ": includes work of a fragment that is not due"));
  }
  // An elastic job may have fewer members than the quorum.
  const uint32_t all = options_.elastic ? 1 : options_.ranks;
  const uint32_t least = record.step == 0 ? all : std::min(std::max(options_.quorum, 1u), all);
  if (own < least || record.n != n) {
    Violate(absl::StrCat(name, ": closed with ", own, " ranks and n = ", record.n, " of ", n));
  }
  const bool updates = options_.rule.has_value() && record.step > 0 && n > 0;
  if (record.rate != (updates ? RateOf(record) : 0)) {
    Violate(absl::StrCat(name, ": an update at rate ", record.rate));
  }
  if (own < options_.ranks) ++left_out_;
  return true;
}

void QuorumLedger::CodeBy(uint64_t plan, ShardModel* model) const {
  if (plan == model->coded_by) return;
  const std::vector<compress::CodecSpec> specs =
      protocol::SpecsUnder(&plans_.at(plan), protocol::Direction::kDownlink,
                           compress::Compressor::kShardSender, model->base);
  Check(model->downlink->Recode(specs).ok(), "codecs may change");
  model->coded_by = plan;
}

// All bundles of a step close before any bundle of the next step.
void QuorumLedger::Advance(uint32_t shard, uint64_t step, ShardModel* model) const {
  (void)shard;
  for (; model->step < step; ++model->step) {
    if (model->step > 0) model->downlink->EndStep(model->step);
  }
}

void QuorumLedger::Closed(uint32_t shard, const protocol::ExchangeReply& answer) {
  const auto found = terms_.find(answer.record.term);
  if (found == terms_.end()) return;
  Term& term = found->second;
  const BundleKey key{answer.step, shard, answer.bundle};
  if (!term.closed.emplace(key, answer.record).second) return;
  if (!CheckRecord(&term, shard, answer)) return;
  Advance(shard, answer.step, &term.shards[shard]);
  if (answer.step > 0) CodeBy(answer.record.plan_id, &term.shards[shard]);
  if (Recompute(&term, shard, answer.record) == answer.results) return;
  Violate(absl::StrCat(QuorumLedgerName(answer.step, shard, answer.bundle),
                       ": another result in term ", answer.record.term, " than its record gives"));
}

std::vector<float> QuorumLedger::MeanOf(Term* term, uint32_t shard,
                                        const protocol::ClosingRecord& record, size_t position) {
  const protocol::Bundle& bundle = layout_.bundles[shard][record.bundle];
  const uint32_t id = bundle.chunks[position];
  compress::Aggregator& aggregator = *term->shards[shard].aggregators[id];
  std::vector<float> sum(layout_.chunks[id].count);
  std::vector<server::HeldContribution> held;
  for (const protocol::Included& included : record.included) {
    if (included.skipped) continue;
    const Work& work = *FindWork(term, shard, record.bundle, included);
    held.push_back({.rank = included.rank,
                    .origin_step = included.origin_step,
                    .work = work.made_from,
                    .frames = work.frames});
  }
  if (!options_.merge.plain() && !bundle.buffers) {
    server::ContributionMerge merge(options_.merge, layout_.fragments);
    const absl::Span<const float> merged =
        merge.MeanOf(record.step, held, position, static_cast<uint32_t>(sum.size()));
    return {merged.begin(), merged.end()};
  }
  for (const server::HeldContribution& each : held) {
    aggregator.Add({{.sender = each.rank, .frame = protocol::FrameBytes(each.frames[position])}},
                   absl::MakeSpan(sum));
  }
  aggregator.Close(record.n, absl::MakeSpan(sum));
  return sum;
}

std::vector<std::string> QuorumLedger::Recompute(Term* term, uint32_t shard,
                                                 const protocol::ClosingRecord& record) {
  ShardModel& model = term->shards[shard];
  size_t local = 0;
  for (uint32_t bundle = 0; bundle < record.bundle; ++bundle) {
    local += layout_.bundles[shard][bundle].chunks.size();
  }
  const std::vector<uint32_t>& chunks = layout_.bundles[shard][record.bundle].chunks;
  std::vector<std::string> results;
  for (size_t i = 0; i < chunks.size() && record.n > 0; ++i, ++local) {
    const uint32_t id = chunks[i];
    if (record.step == 0) {
      std::vector<float> parameters(layout_.chunks[id].count);
      for (const protocol::Included& included : record.included) {
        if (included.skipped) continue;
        results.push_back(FindWork(term, shard, record.bundle, included)->frames[i]);
        const absl::Span<const std::byte> frames = protocol::FrameBytes(results.back());
        Check(compress::DecodeAddFrames(frames, absl::MakeSpan(parameters)).ok(), "decodes");
      }
      if (model.replica.has_value()) model.replica->Set(local, parameters);
      continue;
    }
    std::vector<float> sum = MeanOf(term, shard, record, i);
    if (model.replica.has_value()) {
      model.replica->Update(local, RateOf(record), sum);
      const absl::Span<const float> owed = model.replica->Owed(local);
      sum.assign(owed.begin(), owed.end());
    }
    std::vector<std::byte> frame;
    Check(model.downlink->Encode(local, record.step, sum, &frame).ok(), "means are finite");
    model.downlink->Observe(local, frame);
    model.aggregators[id]->AppendShared(&frame);
    results.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
    if (model.replica.has_value())
      model.replica->Publish(local, protocol::FrameBytes(results.back()));
  }
  return results;
}

void QuorumLedger::CheckAnswer(uint32_t shard, const protocol::ExchangeReply& answer) {
  const auto term = terms_.find(answer.record.term);
  if (term == terms_.end()) return;
  const auto closed = term->second.closed.find({answer.step, shard, answer.bundle});
  if (closed != term->second.closed.end() && closed->second == answer.record &&
      protocol::BundleChecksum(answer.results) == answer.record.result_checksum) {
    return;
  }
  Violate(absl::StrCat(QuorumLedgerName(answer.step, shard, answer.bundle),
                       ": another result in term ", answer.record.term));
}

// Checks that the state of a shard's checkpoint part follows from its records.
void QuorumLedger::Wrote(uint32_t shard, const protocol::ShardSnapshot& snapshot) {
  const auto term = terms_.find(snapshot.term);
  if (term == terms_.end()) return;
  ShardModel& model = term->second.shards[shard];
  Advance(shard, snapshot.step + 1, &model);
  protocol::ShardSnapshot saved = Save(shard, &model);
  if (!IsSame(saved.downlink, snapshot.downlink) || saved.aggregators != snapshot.aggregators ||
      saved.replica != snapshot.replica) {
    Violate(absl::StrCat("the checkpoint of step ", snapshot.step, " of shard ", shard,
                         " does not match its records"));
  }
  written_[{snapshot.term, snapshot.step, shard}] = std::move(saved);
}

void QuorumLedger::Saved(const protocol::Sender& sender, const protocol::WorkerSnapshot& part,
                         absl::FunctionRef<absl::Span<const float>(uint32_t)> residual_of) {
  const auto term = terms_.find(sender.term);
  const bool keeps =
      options_.compression.uplink.compensator.id == compress::CompensatorId::kErrorFeedback;
  if (term == terms_.end() || options_.quorum == 0 || !keeps) return;
  std::map<uint32_t, std::vector<float>> pending;  // By chunk.
  for (const auto& [key, work] : term->second.work) {
    const auto& [shard, bundle, rank, step, incarnation] = key;
    const bool own = rank == sender.rank && incarnation == sender.incarnation;
    if (!own || work.skip || step == 0 || step > part.step) continue;
    if (work.in_step.has_value() && *work.in_step <= part.step) continue;
    if (layout_.bundles[shard][bundle].buffers) continue;
    const std::vector<uint32_t>& chunks = layout_.bundles[shard][bundle].chunks;
    for (size_t i = 0; i < chunks.size(); ++i) {
      std::vector<float>& values = pending[chunks[i]];
      values.resize(layout_.chunks[chunks[i]].count);
      Check(compress::DecodeAddFrames(protocol::FrameBytes(work.frames[i]), absl::MakeSpan(values))
                .ok(),
            "frames that were sent decode");
    }
  }
  for (auto& [chunk, values] : pending) {
    const absl::Span<const float> residual = residual_of(chunk);
    for (size_t i = 0; i < residual.size(); ++i) values[i] += residual[i];
    const auto saved = part.uplink.chunks[chunk].state.find(compress::kResidualState);
    const bool same =
        saved != part.uplink.chunks[chunk].state.end() &&
        std::equal(values.begin(), values.end(), saved->second.begin(), saved->second.end(),
                   [](float a, float b) { return std::abs(a - b) <= 1e-4f; });
    if (same) continue;
    Violate(absl::StrCat("rank ", sender.rank, "'s part of step ", part.step,
                         " does not hold its late work of chunk ", chunk));
  }
  if (!pending.empty()) ++saved_pending_;
}

void QuorumLedger::Reached(uint32_t rank, uint32_t term, uint64_t step, uint32_t parameters_hash) {
  const auto [at, first] = hashes_.try_emplace({term, step}, parameters_hash);
  if (first || at->second == parameters_hash) return;
  Violate(absl::StrCat("rank ", rank, " has other parameters after step ", step,
                       " than another in term ", term));
}

void QuorumLedger::CheckAllIncluded(uint32_t shard, uint32_t term) {
  const auto found = terms_.find(term);
  if (found == terms_.end()) return;
  for (const auto& [key, work] : found->second.work) {
    if (std::get<0>(key) == shard) CheckNotLost(found->second, key, work, "is in no step");
  }
}

// Work of a removed worker may be lost.
void QuorumLedger::CheckNotLost(const Term& term, const WorkKey& key, const Work& work,
                                const std::string& where) {
  const auto& [shard, bundle, rank, step, incarnation] = key;
  if (work.skip || work.in_step.has_value()) return;
  const bool here = rank < term.members.size() && term.members[rank] == incarnation;
  if (options_.elastic && !here) return;
  Violate(absl::StrCat("rank ", rank, "'s work of ", QuorumLedgerName(step, shard, bundle), " ",
                       where));
}

absl::Span<const float> QuorumLedger::DownlinkResidual(uint32_t shard, uint32_t term,
                                                       uint32_t chunk) const {
  const ShardModel& model = terms_.at(term).shards[shard];
  size_t local = 0;
  for (const protocol::Bundle& bundle : layout_.bundles[shard]) {
    for (const uint32_t id : bundle.chunks) {
      if (id == chunk) {
        return model.replica.has_value() ? model.replica->Owed(local)
                                         : model.downlink->residual(local);
      }
      ++local;
    }
  }
  return {};
}

}  // namespace sluice
