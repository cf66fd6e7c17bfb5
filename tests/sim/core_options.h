// SPDX-License-Identifier: Apache-2.0
// Options of the real cores in a simulated job. The caller adds those of the process.
#pragma once

#include <cstdint>

#include "job/exchange_spec.h"
#include "protocol/compression_plan.h"
#include "protocol/membership.h"
#include "protocol/shard_control.h"
#include "protocol/tensor_table.h"
#include "server/shard/shard.h"
#include "tests/sim/survival.h"
#include "worker/core/pipeline.h"

namespace sluice {

inline constexpr uint32_t kRetryMs = 2;  // A busy shard asks workers to wait this long.

// Returns how the job exchanges gradients.
job::ExchangeSpec ExchangeOf(const SurvivalOptions& job);

// Returns the job's first plan, or that of the parent job in a rack; null if there are no plans.
protocol::PlanHistory::Plan FirstPlanOf(const SurvivalOptions& job,
                                        const protocol::TensorTable& table);

// Returns the options that the job and the coordinator's Start determine.
server::ShardOptions ShardOptionsOf(const SurvivalOptions& job, const protocol::StartShard& start);

// Returns the options that the job and the coordinator's grant determine.
worker::PipelineOptions PipelineOptionsOf(const SurvivalOptions& job,
                                          const protocol::JoinGrant& grant);

// Returns a request in which the rank skips a bundle of this shard.
protocol::ExchangeRequest SkipOf(const server::ShardOptions& options, uint32_t rank,
                                 uint64_t incarnation, uint64_t step, uint32_t bundle);

}  // namespace sluice
