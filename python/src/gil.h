// SPDX-License-Identifier: Apache-2.0
// Calls that may wait run without the GIL, so that other threads of Python go on.
#pragma once

#include <nanobind/nanobind.h>

namespace sluice::python {

template <typename Call>
auto WithoutGil(Call call) {
  const nanobind::gil_scoped_release release;
  return call();
}

}  // namespace sluice::python
