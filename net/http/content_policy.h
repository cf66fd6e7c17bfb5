// The Content-Security-Policy of a page that is one file and asks its own server alone.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice::net {

// Nothing is loaded and nothing runs.
extern const char kEmptyPolicy[];

// The scripts and styles between <script> and </script>, <style> and </style> in `page` run, by
// their hashes, and no others: attributes `style` and `on...` have no effect.
std::string PolicyOf(absl::string_view page);

}  // namespace sluice::net
