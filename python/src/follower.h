// SPDX-License-Identifier: Apache-2.0
// The classes Follower and FollowedVersion of the module.
#pragma once

#include <nanobind/nanobind.h>

namespace sluice::python {

void BindFollower(nanobind::module_& m);

}  // namespace sluice::python
