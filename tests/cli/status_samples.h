// SPDX-License-Identifier: Apache-2.0
// Parts of a coordinator's status for tests.
#pragma once

#include <string>

#include "sluice/v1/coordinator.pb.h"

namespace sluice::cli {

inline void Warn(const std::string& kind, const std::string& text, const std::string& action,
                 v1::GetStatusReply* status) {
  v1::StatusWarning* const warning = status->add_warnings();
  warning->set_kind(kind);
  warning->set_text(text);
  warning->set_action(action);
}

}  // namespace sluice::cli
