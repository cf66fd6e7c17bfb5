// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/settings_message.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/enum_names.h"
#include "protocol/wire/common_messages.h"

namespace sluice::server {

RunningSettings SettingsFromProto(const v1::ChangeSettingsRequest& message) {
  RunningSettings settings{.log_level = protocol::LevelFromProto(message.log_level())};
  if (message.has_lease_timeout_seconds()) {
    settings.lease_timeout = absl::Seconds(message.lease_timeout_seconds());
  }
  return settings;
}

void SettingsToProto(const RunningSettings& settings, v1::ChangeSettingsReply* message) {
  if (settings.lease_timeout.has_value()) {
    message->set_lease_timeout_seconds(absl::ToDoubleSeconds(*settings.lease_timeout));
  }
  message->set_log_level(protocol::LevelToProto(settings.log_level));
}

std::string ToString(const RunningSettings& settings) {
  std::vector<std::string> parts;
  if (settings.lease_timeout.has_value()) {
    parts.push_back(absl::StrCat("lease_timeout ", absl::FormatDuration(*settings.lease_timeout)));
  }
  if (settings.log_level.has_value()) {
    parts.push_back(absl::StrCat("log level ", NameOf(*settings.log_level)));
  }
  return parts.empty() ? "nothing" : absl::StrJoin(parts, ", ");
}

}  // namespace sluice::server
