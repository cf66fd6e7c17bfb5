// SPDX-License-Identifier: Apache-2.0
// TorchStatus: converts LibTorch's exceptions to a Status before they leave this code base.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::worker {

// Runs `body`, which returns a Status or StatusOr. Converts an exception to INTERNAL, with `what`
// before its message.
template <typename Body>
std::invoke_result_t<Body> TorchStatus(absl::string_view what, Body&& body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    return absl::InternalError(absl::StrCat(what, ": ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(what, ": ", error.what()));
  }
}

}  // namespace sluice::worker
