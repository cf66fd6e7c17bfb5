// SPDX-License-Identifier: Apache-2.0
// Conversion of the client library's errors to Python exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "sluice/status.h"

namespace sluice::python {

// Raises sluice.RollbackError after a rollback, and sluice.SluiceError otherwise. The caller must
// hold the GIL.
[[noreturn]] void Raise(const client::Status& status);

inline void OrRaise(const client::Status& status) {
  if (!status.ok()) Raise(status);
}

template <typename T>
T OrRaise(client::Result<T> result) {
  if (!result.ok()) Raise(result.status());
  return std::move(*result);
}

}  // namespace sluice::python
