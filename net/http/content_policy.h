// SPDX-License-Identifier: Apache-2.0
// The Content-Security-Policy of a page that consists of a single file and contacts only its own
// server.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice::net {

// A policy that does not let a page load or run anything.
extern const char kEmptyPolicy[];

// Returns a policy that allows only the scripts between <script> and </script> and the styles
// between <style> and </style> in `page`, by their hashes. The attributes `style` and `on...` have
// no effect.
std::string PolicyOf(absl::string_view page);

}  // namespace sluice::net
