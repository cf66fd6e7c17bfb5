// SPDX-License-Identifier: Apache-2.0
// write_scalars FOLDER: writes the scalars of a run with a test after every 20 steps. The run was
// stopped after step 47 and continued from a checkpoint after step 40.
#include <cstdlib>

#include "worker/scalars/scalar_log.h"

namespace sluice::worker {
namespace {

constexpr uint64_t kTestEvery = 20;

void WriteSteps(uint64_t first, uint64_t last, double lost, ScalarLog* log) {
  for (uint64_t step = first; step <= last; ++step) {
    const absl::Time now = absl::FromUnixSeconds(1'700'000'000 + static_cast<int64_t>(step));
    const auto x = static_cast<double>(step);
    log->Append({.step = step,
                 .epoch = step / kTestEvery,
                 .wall_seconds = x / 8,
                 .loss = 2 / x + lost,
                 .learning_rate = 0.125,
                 .samples_per_second = 4096,
                 .step_ms = 125,
                 .bytes_up = 1000 + x,
                 .bytes_down = 2000,
                 .ratio_up = 128,
                 .ratio_down = 64,
                 .exposed_seconds = 0.0625},
                now);
    if (step % kTestEvery != 0) continue;
    log->Append({.step = step,
                 .epoch = step / kTestEvery,
                 .wall_seconds = x / 8 + 0.5,
                 .test_accuracy = x / 128,
                 .test_loss = 1 / x + lost},
                now);
  }
}

}  // namespace
}  // namespace sluice::worker

int main(int argc, char** argv) {
  if (argc != 2) return EXIT_FAILURE;
  const sluice::Logger logger("write_scalars");
  const absl::Time began = absl::FromUnixSeconds(1'700'000'000);
  {
    sluice::worker::ScalarLog log(argv[1], 0, began, &logger);
    sluice::worker::WriteSteps(1, 40, 0, &log);
    sluice::worker::WriteSteps(41, 47, 100, &log);  // Lost work, with recognizable values.
  }
  sluice::worker::ScalarLog log(argv[1], 40, began + absl::Seconds(48), &logger);
  sluice::worker::WriteSteps(41, 60, 0, &log);
  return EXIT_SUCCESS;
}
