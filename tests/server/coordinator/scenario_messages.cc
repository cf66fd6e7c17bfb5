// SPDX-License-Identifier: Apache-2.0
#include "tests/server/coordinator/scenario_messages.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::server {
namespace {

protocol::TensorTable TableOf(uint64_t elements) {
  return {{.name = "w",
           .shape = {static_cast<int64_t>(elements)},
           .strides = {},
           .dtype = protocol::DType::kFloat32}};
}

}  // namespace

protocol::WorkerJoin JoinFrom(const ScenarioCommand& command, uint32_t rank) {
  return {.job_name = command.Text("job", "demo"),
          .job_hash = command.Number("hash", 9),
          .nonce = command.Number("nonce", 1000 + rank),
          .rank = rank,
          .table = TableOf(command.Number("shape", 4)),
          .parameters_sha256 = command.Text("sha", "same"),
          .software_version = command.Text("version", "1"),
          .host = command.Text("host", "a"),
          .pid = static_cast<uint32_t>(command.Number("pid", 120 + rank))};
}

protocol::ShardArrival ArrivalFrom(const ScenarioCommand& command, uint32_t shard) {
  return {.job_name = "demo",
          .job_hash = 9,
          .shard = shard,
          .address = command.Text("address", absl::StrCat("h:", 7070 + shard)),
          .server_incarnation = command.Number("process", 50),
          .software_version = command.Text("version", "1"),
          .job_uid = 77,
          .term = static_cast<uint32_t>(command.Number("term", 0)),
          .running = command.Has("term"),
          .nonce = command.Number("nonce", 0)};
}

CoordinatorOptions OptionsFrom(const ScenarioCommand& command, CoordinatorOptions options) {
  options.world_size = static_cast<uint32_t>(command.Number("workers", options.world_size));
  options.shards = static_cast<uint32_t>(command.Number("shards", options.shards));
  options.shards = static_cast<uint32_t>(command.Number("shards", options.shards));
  if (command.Has("checkpoint_interval")) options.checkpoint.dir = "checkpoints";
  options.checkpoint.interval = command.Number("checkpoint_interval", options.checkpoint.interval);
  options.checkpoint.keep = static_cast<uint32_t>(command.Number("keep", options.checkpoint.keep));
  options.checkpoint.replay_limit = command.Number("replay_limit", options.checkpoint.replay_limit);
  options.why_no_replay = command.Text("why_no_replay", options.why_no_replay);
  if (command.Has("store")) {
    options.checkpoint.store = command.Text("store") == "shards"
                                   ? protocol::CheckpointStore::kShards
                                   : protocol::CheckpointStore::kPath;
  }
  if (command.Has("start")) {
    options.elastic = {.start = static_cast<uint32_t>(command.Number("start", 1)),
                       .least = static_cast<uint32_t>(command.Number("least", 1))};
  }
  options.server.stall_timeout = command.Time("stall", options.server.stall_timeout);
  if (command.Has("lockstep")) {
    options.exchange.mode = command.Text("lockstep") != "no" ? job::Mode::kSync : job::Mode::kAsync;
  }
  options.steps_per_exchange = command.Number("steps_per_exchange", options.steps_per_exchange);
  if (command.Has("update")) options.shards_update = command.Text("update") == "shards";
  if (command.HasWord("rack")) options.in_rack = true;
  return options;
}

protocol::WorkerHeartbeat HeartbeatFrom(const ScenarioCommand& command,
                                        protocol::WorkerHeartbeat* last) {
  last->progress.step = command.Number("step", last->progress.step);
  last->replay_from = command.Number("replay_from", last->replay_from);
  last->since_progress = command.Time("stalled", last->since_progress);
  last->restoring_step = command.Number("restoring", last->restoring_step);
  last->progress.residual_energy = command.Real("residual", last->progress.residual_energy);
  if (command.Has("known")) last->known_shards = command.Numbers("known");
  protocol::WorkerHeartbeat beat = *last;
  beat.parameters_hash_step = command.Number("hash", 0);
  if (beat.parameters_hash_step > 0) beat.parameters_sha256 = command.Text("sha", "same");
  const std::string own = protocol::WorkerPartName(beat.sender.rank, beat.sender.term);
  for (const uint64_t step : command.Numbers("part")) {
    beat.parts.push_back({.term = beat.sender.term,
                          .step = step,
                          .name = command.Text("name", own),
                          .bytes = 1,
                          .error = command.Text("error")});
  }
  const std::string wrong = command.Text("wrong");
  if (wrong == "run") beat.sender.job_uid = 1;
  if (wrong == "rank") beat.sender.rank = 44;
  if (wrong == "holder") beat.sender.incarnation ^= 2;
  return beat;
}

protocol::CheckpointPart PartFrom(const ScenarioCommand& command, uint32_t term) {
  return {.term = static_cast<uint32_t>(command.Number("term", term)),
          .step = command.NumberAt(2),
          .name = command.Text("name"),
          .bytes = 1,
          .checksum = static_cast<uint32_t>(command.Number("checksum", 0)),
          .error = command.Text("error"),
          .server = static_cast<uint32_t>(command.Number("server", 0)),
          .unreadable = command.HasWord("unreadable")};
}

}  // namespace sluice::server
