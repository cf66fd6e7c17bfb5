// `sluice codecs`: the codec table for people.
#pragma once

#include <string>

namespace sluice::cli {

// A table of names, examples and summaries, and how specs are written; ends with a newline.
std::string FormatCodecTable();

// For programs: an array of {name, example, downlink, compensators: {name: usual | yes | reason}}.
std::string CodecTableJson();

}  // namespace sluice::cli
