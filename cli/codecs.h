// `sluice codecs`: the codec table for people.
#pragma once

#include <string>

namespace sluice {

// A table of names, examples and summaries, and how specs are written; ends with a newline.
std::string FormatCodecTable();

}  // namespace sluice
