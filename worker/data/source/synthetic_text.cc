// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/synthetic_text.h"

#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "base/random.h"

namespace sluice::worker {
namespace {

constexpr uint64_t kTextSeed = 8128;
constexpr uint32_t kWords = 512;
constexpr uint32_t kFollowers = 6;

enum TextStream : uint64_t { kSpelling = 1, kFollowing = 2, kSentences = 3 };

std::string MakeWord(uint32_t word) {
  constexpr absl::string_view kOnsets = "bdfghjklmnprstvwz";
  constexpr absl::string_view kVowels = "aeiou";
  constexpr absl::string_view kCodas = "lmnrst";
  CounterRandom random(kTextSeed, kSpelling, word);
  const uint64_t syllables = 1 + random.Below(3);
  std::string text;
  for (uint64_t i = 0; i < syllables; ++i) {
    text += kOnsets[random.Below(kOnsets.size())];
    text += kVowels[random.Below(kVowels.size())];
    if (random.Below(3) == 0) text += kCodas[random.Below(kCodas.size())];
  }
  return text;
}

// Draws words by Zipf's law: the frequency of word w is roughly proportional to 1 / (w + 1).
// Integer arithmetic gives the same result on every machine.
class ZipfWords {
 public:
  ZipfWords() {
    uint64_t sum = 0;
    for (uint32_t word = 0; word < kWords; ++word) {
      sum += (uint64_t{1} << 32) / (word + 1);
      sums_.push_back(sum);
    }
  }
  uint32_t Draw(CounterRandom* random) const {
    const uint64_t place = random->Below(sums_.back());
    uint32_t word = 0;
    while (sums_[word] <= place) ++word;
    return word;
  }

 private:
  std::vector<uint64_t> sums_;
};

}  // namespace

std::string MakeSyntheticText(size_t characters) {
  const ZipfWords zipf;
  std::vector<std::string> words;
  std::vector<uint32_t> followers;
  for (uint32_t word = 0; word < kWords; ++word) {
    words.push_back(MakeWord(word));
    CounterRandom random(kTextSeed, kFollowing, word);
    for (uint32_t i = 0; i < kFollowers; ++i) followers.push_back(zipf.Draw(&random));
  }
  std::string text;
  for (uint64_t sentence = 0; text.size() < characters; ++sentence) {
    CounterRandom random(kTextSeed, kSentences, sentence);
    const uint64_t length = 3 + random.Below(10);
    uint32_t word = zipf.Draw(&random);
    for (uint64_t i = 0; i < length; ++i) {
      if (i > 0) text += random.Below(8) == 0 ? ", " : " ";
      const size_t at = text.size();
      text += words[word];
      if (i == 0) text[at] = absl::ascii_toupper(static_cast<unsigned char>(text[at]));
      word = random.Below(4) > 0 ? followers[size_t{word} * kFollowers + random.Below(kFollowers)]
                                 : zipf.Draw(&random);
    }
    text += random.Below(6) == 0 ? ".\n" : ". ";
  }
  text.resize(characters);
  return text;
}

}  // namespace sluice::worker
