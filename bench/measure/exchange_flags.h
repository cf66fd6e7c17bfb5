// SPDX-License-Identifier: Apache-2.0
// The flags of `sluice bench exchange` and of its workers.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "bench/measure/exchange_bench.h"

namespace sluice::bench {

// Adds both subcommands. Parsing the arguments stores the selected command in `chosen`; the command
// returns the exit code. `usual` provides the settings that have no flags: programs, folders,
// console.
void AddExchangeCommands(const ExchangeBenchOptions& usual, CLI::App* bench,
                         std::function<int()>* chosen);

}  // namespace sluice::bench
