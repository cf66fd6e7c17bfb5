// SPDX-License-Identifier: Apache-2.0
// Conversion between plain types and messages for parts that several messages share: senders, parts
// of checkpoints, waits for disks, layouts and phases.
#pragma once

#include <optional>
#include <string>

#include "base/log_level.h"
#include "protocol/disk_wait.h"
#include "protocol/exchange.h"
#include "protocol/job_phase.h"
#include "protocol/layout.h"
#include "protocol/snapshot.h"
#include "sluice/v1/common.pb.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice::protocol {

void SenderToProto(const Sender& sender, v1::Sender* message);
Sender SenderFromProto(const v1::Sender& message);

void PartToProto(const CheckpointPart& part, v1::CheckpointPart* message);
// Converts the part without checks. Workers use this function for messages from servers.
CheckpointPart PartFromProto(const v1::CheckpointPart& message);
// Converts the part and checks its name. Servers use this function. If it is not a valid file name,
// the part's error says so.
CheckpointPart CheckedPartFromProto(const v1::CheckpointPart& message);

void LayoutToProto(const LayoutParameters& layout, v1::LayoutParameters* message);
LayoutParameters LayoutFromProto(const v1::LayoutParameters& message);

void WaitToProto(const DiskWait& wait, v1::DiskWait* message);
// Converts a wait. Shortens its strings; an impossible duration becomes 0.
DiskWait WaitFromProto(const v1::DiskWait& message);

v1::JobPhase PhaseToProto(JobPhase phase);
// Returns `otherwise` for an unknown phase.
JobPhase PhaseFromProto(v1::JobPhase phase, JobPhase otherwise);

// LOG_LEVEL_UNSPECIFIED, and a level that this version does not know, stand for no level.
v1::LogLevel LevelToProto(std::optional<LogLevel> level);
std::optional<LogLevel> LevelFromProto(v1::LogLevel level);

// Shortens a reason, a host or an address to 4,096 bytes of valid UTF-8.
std::string Shortened(const std::string& text);

// Returns `amount` if it is finite and above 0, and 0 otherwise.
double AmountFromProto(double amount);

}  // namespace sluice::protocol
