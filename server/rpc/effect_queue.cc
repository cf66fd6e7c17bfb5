// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/effect_queue.h"

#include <utility>
#include <variant>

namespace sluice::server {
namespace {

bool IsRecord(const CoordinatorEffect& effect) {
  return std::holds_alternative<PersistRun>(effect);
}

bool NeedsDisk(const CoordinatorEffect& effect) {
  return IsRecord(effect) || std::holds_alternative<WriteCheckpoint>(effect) ||
         std::holds_alternative<DropCheckpoint>(effect);
}

// Returns true if the effect is still delivered after the job has failed.
bool MayBeTold(const CoordinatorEffect& effect) {
  const auto* command = std::get_if<CommandShard>(&effect);
  return std::holds_alternative<Notice>(effect) || std::holds_alternative<RefuseShard>(effect) ||
         (command != nullptr && std::holds_alternative<protocol::EndShard>(command->command));
}

}  // namespace

void EffectQueue::Add(CoordinatorEffects effects) {
  for (CoordinatorEffect& effect : effects) {
    if (IsRecord(effect)) ++records_;
    waiting_.push_back(std::move(effect));
  }
}

std::optional<CoordinatorEffect> EffectQueue::Take() {
  if (writing_ || waiting_.empty()) return std::nullopt;
  CoordinatorEffect effect = std::move(waiting_.front());
  waiting_.pop_front();
  writing_ = NeedsDisk(effect);
  writes_record_ = IsRecord(effect);
  return effect;
}

void EffectQueue::WriteEnded() {
  writing_ = false;
  if (writes_record_) --records_;
}

void EffectQueue::DropUnannounced() {
  std::erase_if(waiting_, [](const CoordinatorEffect& effect) { return !MayBeTold(effect); });
  records_ = 0;
}

}  // namespace sluice::server
