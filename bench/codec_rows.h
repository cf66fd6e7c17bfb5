// SPDX-License-Identifier: Apache-2.0
// The rows of codec_bench. Each row consists of the measured work, the work that it is compared
// with, and the required floor.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/memory.h"
#include "bench/paired_timing.h"

namespace sluice::bench {

// What a row's figure means.
enum class Figure {
  // Time of the compared work divided by the row's time: 1 means equal speed, and more is better.
  kShare,
  kTimes,        // The inverse of kShare: less is better.
  kNanoseconds,  // The row's time per unit: less is better.
};

struct Work {
  Pair pair;
  double units = 0;  // Units per slice, for kNanoseconds.
};

struct Row {
  std::string group;
  std::string name;
  std::string against;
  Figure figure = Figure::kShare;
  double floor = 0;  // Floor of the figure; 0 if there is none.
  // Prepares the work. Only one row at a time uses `memory`.
  std::function<Work(Memory* memory)> make;
};

std::vector<Row> AllRows();

// Name and one-line summary of a group, for --help and the table.
struct Group {
  std::string name;
  std::string summary;
};
std::vector<Group> Groups();

}  // namespace sluice::bench
