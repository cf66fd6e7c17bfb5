// The flags of `sluice bench exchange` and of its workers.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "bench/measure/exchange_bench.h"

namespace sluice::bench {

// Adds both subcommands. What is chosen when the arguments are parsed goes to `chosen`, and returns
// the exit code. `usual` has what the flags do not say: programs, folders, console.
void AddExchangeCommands(const ExchangeBenchOptions& usual, CLI::App* bench,
                         std::function<int()>* chosen);

}  // namespace sluice::bench
