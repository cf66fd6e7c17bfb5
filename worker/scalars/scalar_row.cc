// SPDX-License-Identifier: Apache-2.0
#include "worker/scalars/scalar_row.h"

namespace sluice::worker {
namespace {

constexpr ScalarColumn kColumns[] = {
    {"loss", "loss/train", &ScalarRow::loss},
    {"learning_rate", "learning_rate", &ScalarRow::learning_rate},
    {"samples_per_second", "samples_per_second", &ScalarRow::samples_per_second},
    {"step_ms", "time/step_ms", &ScalarRow::step_ms},
    {"bytes_up", "bytes/up", &ScalarRow::bytes_up},
    {"bytes_down", "bytes/down", &ScalarRow::bytes_down},
    {"ratio_up", "ratio/up", &ScalarRow::ratio_up},
    {"ratio_down", "ratio/down", &ScalarRow::ratio_down},
    {"exposed_seconds", "time/exposed_ms", &ScalarRow::exposed_seconds, 1000},
    {"test_accuracy", "accuracy/test", &ScalarRow::test_accuracy},
    {"test_loss", "loss/test", &ScalarRow::test_loss},
};

}  // namespace

absl::Span<const ScalarColumn> ScalarColumns() { return kColumns; }

}  // namespace sluice::worker
