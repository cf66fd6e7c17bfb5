// SPDX-License-Identifier: Apache-2.0
// Conversion between RunningSettings and the messages of ChangeSettings.
#pragma once

#include <string>

#include "server/coordinator/administration.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice::server {

// Converts without checks: Administration::Change checks the values.
RunningSettings SettingsFromProto(const v1::ChangeSettingsRequest& message);
void SettingsToProto(const RunningSettings& settings, v1::ChangeSettingsReply* message);
// Describes what is set, for example "lease_timeout 30s, log level debug".
std::string ToString(const RunningSettings& settings);

}  // namespace sluice::server
