// SPDX-License-Identifier: Apache-2.0
// Sends a gradient through a codec of the installed library, and prints how much arrived.
#include <cmath>
#include <cstdio>
#include <vector>

#include "sluice/codec.h"

int main() {
  constexpr int kElements = 10000;
  std::vector<float> gradient(kElements);
  for (int i = 0; i < kElements; ++i) gradient[i] = i % 100 == 0 ? 100.0f : 0.001f;
  auto codec = sluice::client::Codec::Create("topk:1%", {kElements}, 1, 0);
  if (!codec.ok()) return 1;
  auto frames = (*codec)->Encode(gradient);
  if (!frames.ok()) return 2;
  std::vector<float> sum(kElements);
  if (!sluice::client::DecodeAdd(*frames, sum).ok()) return 3;
  int arrived = 0;
  for (int i = 0; i < kElements; ++i) arrived += std::fabs(sum[i] - 100.0f) < 1.0f ? 1 : 0;
  std::printf("%d large values arrived, compressed: %s\n", arrived,
              frames->size() * 10 < sizeof(float) * kElements ? "yes" : "no");
}
