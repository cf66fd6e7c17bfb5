// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/effect_text.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/sim/sim_failure.h"

namespace sluice {
namespace {

// Each effect differs from the one before it in one field.
TEST(EffectTextTest, EveryFieldChangesTheText) {
  protocol::JoinGrant grant;
  protocol::JoinGrant late = grant;
  late.late_joiner = true;
  protocol::CheckpointManifest manifest;
  protocol::CheckpointManifest with_part = manifest;
  with_part.parts.emplace_back();
  protocol::RunRecord record;
  record.members.emplace_back();
  const protocol::TensorTable table(1);
  protocol::StartShard start;
  start.table = table;
  const server::CoordinatorEffect effects[] = {
      server::AnswerJoin{1, absl::AbortedError("late")},
      server::AnswerJoin{1, absl::AbortedError("later")},
      server::AnswerJoin{1, absl::NotFoundError("later")},
      server::AnswerJoin{1, grant},
      server::AnswerJoin{1, late},
      server::CommandShard{1, 2, protocol::NameCheckpoint{3}},
      server::CommandShard{1, 3, protocol::NameCheckpoint{3}},
      server::CommandShard{1, 3, protocol::ReleaseResults{3}},
      server::CommandShard{1, 3, protocol::SuspendShard{3, "a"}},
      server::CommandShard{1, 3, protocol::SuspendShard{3, "b"}},
      server::CommandShard{1, 3, protocol::SetMembers{3, {1, 2}}},
      server::CommandShard{1, 3, protocol::SetMembers{3, {12}}},
      server::CommandShard{1, 3, protocol::StartShard()},
      server::CommandShard{1, 3, start},
      server::RefuseShard{1, absl::AbortedError("late")},
      server::PersistRun{},
      server::PersistRun{record},
      server::WriteCheckpoint{manifest},
      server::WriteCheckpoint{with_part},
      server::DropCheckpoint{8},
      server::AnswerCheckpoint{1, 8},
      server::AskParent{1, {}},
      server::AskParent{1, table},
      server::LeaveParent{1},
      server::Notice{.text = "lost", .warning = false, .fields = {}},
      server::Notice{.text = "lost", .warning = true, .fields = {}},
      server::Notice{.text = "lost", .warning = true, .fields = {.rank = 0}},
      server::Notice{.text = "lost", .warning = true, .fields = {.shard = 0}}};
  std::set<std::string> texts;
  for (const server::CoordinatorEffect& effect : effects) {
    EXPECT_TRUE(texts.insert(EffectText(effect)).second) << EffectText(effect);
  }
}

// The two jobs differ only in a value that the coordinator passes to the shards and workers.
TEST(EffectTextTest, TheTraceContainsTheCoordinatorsEffects) {
  SurvivalOptions options = UsualJob(1);
  const SurvivalReport first = RunSurvival(options);
  options.window_bytes *= 2;
  const SurvivalReport second = RunSurvival(options);
  EXPECT_EQ(first.delivered, second.delivered);
  EXPECT_EQ(first.parameters_hash, second.parameters_hash);
  EXPECT_NE(first.trace_hash, second.trace_hash);
}

}  // namespace
}  // namespace sluice
