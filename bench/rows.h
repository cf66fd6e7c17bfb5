// The rows of codec_bench: what is measured against what, and the floor that it should reach.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/alternate.h"
#include "bench/memory.h"

namespace sluice::bench {

// What a row's figure is.
enum class Figure {
  kShare,        // Time of what it is measured against over its own: 1 is as fast, more is better.
  kTimes,        // The other way round: less is better.
  kNanoseconds,  // Its own time per unit: less is better.
};

struct Work {
  Pair pair;
  double units = 0;  // In a slice, for kNanoseconds.
};

struct Row {
  std::string group;
  std::string name;
  std::string against;
  Figure figure = Figure::kShare;
  double floor = 0;  // Of the figure; 0: there is none.
  // Sets up what it takes; one row's work at a time has `memory`.
  std::function<Work(Memory* memory)> make;
};

std::vector<Row> AllRows();

// What the groups are, for --help and the table: name and one line.
struct Group {
  std::string name;
  std::string summary;
};
std::vector<Group> Groups();

}  // namespace sluice::bench
