// SPDX-License-Identifier: Apache-2.0
// Makes every codec of the fetched library.
#include <cstdio>

#include "compress/codec_table.h"

int main() {
  int codecs = 0;
  for (const sluice::compress::CodecEntry& codec : sluice::compress::Codecs()) {
    const auto spec = sluice::compress::ParseCodecSpec(codec.example);
    codecs += spec.ok() && sluice::compress::MakeCodec(*spec) != nullptr ? 1 : 0;
  }
  std::printf("made %d codecs\n", codecs);
}
