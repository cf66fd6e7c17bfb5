// The status page: one file without anything from elsewhere, which asks for status.json and draws
// it. Its source is status_page.html.
#pragma once

#include "absl/strings/string_view.h"

namespace sluice::server {

absl::string_view StatusPage();

}  // namespace sluice::server
