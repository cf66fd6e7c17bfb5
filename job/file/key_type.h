// SPDX-License-Identifier: Apache-2.0
// KeyType: the kind of value that a key of the job file takes.
#pragma once

namespace sluice::job {

enum class KeyType { kSection, kBoolean, kWhole, kNumber, kText, kBytes, kSeconds, kCodec };

}  // namespace sluice::job
