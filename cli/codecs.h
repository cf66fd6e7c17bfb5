// SPDX-License-Identifier: Apache-2.0
// `sluice codecs`: prints the table of codecs.
#pragma once

#include <string>

namespace sluice::cli {

// Returns a table of names, examples and summaries, followed by the syntax of specs. The text ends
// with a newline.
std::string FormatCodecTable();

// Returns the table for programs: an array of {name, example, downlink, compensators: {name: usual
// | yes | reason}}.
std::string CodecTableJson();

}  // namespace sluice::cli
