// Synthetic text: made-up sentences, for tests and trials without files.
#pragma once

#include <cstddef>
#include <string>

namespace sluice::worker {

// So many characters of sentences of made-up words: lower-case letters, capitals at a sentence's
// beginning, spaces, commas, full stops and new lines. Words are as frequent as Zipf's law says,
// and three of four times come from the few that go with the word before, so that a model that sees
// further back predicts better. The same for every call, on every machine; a shorter text is the
// beginning of a longer one.
std::string MakeSyntheticText(size_t characters);

}  // namespace sluice::worker
