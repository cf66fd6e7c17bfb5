// SPDX-License-Identifier: Apache-2.0
// Synthetic text: generated sentences for tests and trials without files.
#pragma once

#include <cstddef>
#include <string>

namespace sluice::worker {

// Returns `characters` characters of sentences with generated words: lower-case letters, capitals
// at the beginning of sentences, spaces, commas, full stops and line breaks. Word frequencies
// follow Zipf's law. Three out of four words come from a small set that depends on the previous
// word, so that a model with a longer context predicts better. Every call on every machine returns
// the same text; a shorter text is the beginning of a longer one.
std::string MakeSyntheticText(size_t characters);

}  // namespace sluice::worker
