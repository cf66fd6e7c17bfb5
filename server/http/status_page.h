// SPDX-License-Identifier: Apache-2.0
// The status page: one file without external resources. The page polls status.json and displays its
// contents. Its source is status_page.html.
#pragma once

#include "absl/strings/string_view.h"

namespace sluice::server {

absl::string_view StatusPage();

}  // namespace sluice::server
