// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/effect_text.h"

#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "protocol/compression_plan.h"

namespace sluice {
namespace {

// Structured bindings name every field, so that a new field does not compile until it is added.
class EffectWriter {
 public:
  std::string text() && { return std::move(text_); }

  template <typename... Fields>
  void Add(const Fields&... fields) {
    (AddOne(fields), ...);
  }

 private:
  void AddOne(const std::string& value) { absl::StrAppend(&text_, value.size(), ":", value, " "); }
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  void AddOne(Number value) { absl::StrAppend(&text_, +value, " "); }
  void AddOne(double value) { absl::StrAppend(&text_, absl::SixDigits(value), " "); }
  void AddOne(protocol::JobPhase phase) { AddOne(static_cast<int>(phase)); }
  void AddOne(absl::Duration value) { AddOne(absl::ToInt64Nanoseconds(value)); }
  void AddOne(const absl::Status& status) { AddOne(status.ToString()); }
  void AddOne(const protocol::TensorTable& table) {
    Add(table.size(), protocol::HashTensorTable(table));
  }
  void AddOne(const std::shared_ptr<const protocol::CompressionPlan>& plan) {
    if (plan == nullptr) return AddOne(0);
    Add(plan->id, plan->effective_step);
  }
  template <typename T>
  void AddOne(const std::vector<T>& values) {
    AddOne(values.size());
    for (const T& value : values) AddOne(value);
  }
  template <typename T>
  void AddOne(const std::optional<T>& value) {
    AddOne(value.has_value());
    if (value.has_value()) AddOne(*value);
  }
  template <typename T>
  void AddOne(const absl::StatusOr<T>& value) {
    AddOne(value.status());
    if (value.ok()) AddOne(*value);
  }
  template <typename... T>
  void AddOne(const std::variant<T...>& value) {
    AddOne(value.index());
    std::visit([this](const auto& which) { this->AddOne(which); }, value);
  }

  void AddOne(const protocol::LayoutParameters& layout) {
    const auto& [chunk_elements, bundle_elements, fragments] = layout;
    Add(chunk_elements, bundle_elements);
    if (fragments != 1) Add(fragments);
  }
  void AddOne(const protocol::ShardPlace& place) {
    const auto& [shard, address, server_incarnation] = place;
    Add(shard, address, server_incarnation);
  }
  void AddOne(const protocol::CheckpointPart& part) {
    const auto& [term, step, name, bytes, checksum, error, server, unreadable, file] = part;
    Add(term, step, name, bytes, checksum, error, server, unreadable, file);
  }
  void AddOne(const protocol::CheckpointManifest& manifest) {
    const auto& [job_name, job_hash, job_uid, term, step, world_size, shards, table_hash, layout,
                 software_version, at_shards, parts] = manifest;
    Add(job_name, job_hash, job_uid, term, step, world_size, shards, table_hash, layout,
        software_version, at_shards, parts);
  }
  void AddOne(const protocol::RunMember& member) {
    const auto& [nonce, incarnation, host, pid, parameters_sha256] = member;
    Add(nonce, incarnation, host, pid, parameters_sha256);
  }
  void AddOne(const protocol::RunRecord& record) {
    const auto& [job_name, job_uid, term, finished, coordinator_incarnation, generation,
                 restore_step, parameters_agree, table, members] = record;
    Add(job_name, job_uid, term, finished, coordinator_incarnation, generation, restore_step,
        parameters_agree, table, members);
  }
  void AddOne(const protocol::JoinGrant& grant) {
    const auto& [job_uid, term, rank, incarnation, generation, world_size, first_step, layout,
                 shards, window_bytes, parameters_agree, restore_step, restore_world_size,
                 restore_parts, lease, heartbeat, server_incarnation, late_joiner, members, plan] =
        grant;
    Add(job_uid, term, rank, incarnation, generation, world_size, first_step, layout, shards,
        window_bytes, parameters_agree, restore_step, restore_world_size, restore_parts, lease,
        heartbeat, server_incarnation, late_joiner, members, plan);
  }

  void AddOne(const protocol::StartShard& start) {
    const auto& [job_uid, term, first_step, table, layout, generation, incarnations, window_bytes,
                 coordinator_incarnation, parameters_agree, restore_step, replay,
                 restore_world_size, restore_part, former_states] = start;
    Add(job_uid, term, first_step, table, layout, generation, incarnations, window_bytes,
        coordinator_incarnation, parameters_agree, restore_step, replay, restore_world_size,
        restore_part);
    // No simulated job changes its number of shards.
    if (!former_states.empty()) Add(former_states);
  }
  void AddOne(const protocol::FormerState& former) {
    const auto& [part, address] = former;
    Add(part, address);
  }
  void AddOne(const protocol::EndShard& end) {
    const auto& [phase, reason] = end;
    Add(phase, reason);
  }
  void AddOne(const protocol::NameCheckpoint& name) {
    const auto& [minimum_step] = name;
    Add(minimum_step);
  }
  void AddOne(const protocol::SuspendShard& suspend) {
    const auto& [term, reason] = suspend;
    Add(term, reason);
  }
  void AddOne(const protocol::SetMembers& members) {
    const auto& [generation, incarnations] = members;
    Add(generation, incarnations);
  }
  void AddOne(const protocol::ReleaseResults& release) {
    const auto& [durable_step] = release;
    Add(durable_step);
  }
  void AddOne(const protocol::KeepCheckpoints& keep) {
    const auto& [steps, before] = keep;
    Add(steps, before);
  }
  void AddOne(const protocol::ExaminePart& examine) {
    const auto& [part] = examine;
    Add(part);
  }
  void AddOne(const protocol::SetLogLevel& log) {
    const auto& [lowest] = log;
    Add(static_cast<int>(lowest));
  }

  void AddOne(const server::AnswerJoin& answer) {
    const auto& [token, grant] = answer;
    Add(token, grant);
  }
  void AddOne(const server::CommandShard& effect) {
    const auto& [stream, sequence, command] = effect;
    Add(stream, sequence, command);
  }
  void AddOne(const server::RefuseShard& refusal) {
    const auto& [stream, why] = refusal;
    Add(stream, why);
  }
  void AddOne(const server::PersistRun& persist) {
    const auto& [record] = persist;
    Add(record);
  }
  void AddOne(const server::WriteCheckpoint& write) {
    const auto& [manifest] = write;
    Add(manifest);
  }
  void AddOne(const server::DropCheckpoint& drop) {
    const auto& [step] = drop;
    Add(step);
  }
  void AddOne(const server::AnswerCheckpoint& answer) {
    const auto& [token, step] = answer;
    Add(token, step);
  }
  void AddOne(const server::AskParent& ask) {
    const auto& [term, table] = ask;
    Add(term, table);
  }
  void AddOne(const server::LeaveParent& leave) {
    const auto& [term] = leave;
    Add(term);
  }
  void AddOne(const server::Notice& notice) {
    const auto& [text, warning, fields] = notice;
    const auto& [event, rank, shard, step, reason] = fields;
    Add(text, warning, event, rank, shard, step, reason);
  }

  std::string text_;
};

}  // namespace

std::string EffectText(const server::CoordinatorEffect& effect) {
  EffectWriter writer;
  writer.Add(effect);
  return std::move(writer).text();
}

}  // namespace sluice
