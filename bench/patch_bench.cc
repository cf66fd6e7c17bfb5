// SPDX-License-Identifier: Apache-2.0
// patch_bench OLD.safetensors NEW.safetensors [SECONDS]: speed of encoding and applying the patch
// between two models, as JSON. Figures are GB (10^9 bytes) of the resulting weights per second of
// processor time, medians of the repetitions.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "follow/patch.h"
#include "follow/safetensors.h"
#include "protocol/checkpoint/durable_file.h"

namespace sluice::bench {
namespace {

// Other programs disturb processor time less than wall time.
double ProcessorSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr uint64_t kFileBytesMax = uint64_t{1} << 34;

struct Weights {
  follow::SafetensorsModel model;
  std::vector<std::byte> bytes;
};

Weights Load(const char* path) {
  const absl::StatusOr<std::string> file = protocol::ReadWholeFile(path, kFileBytesMax);
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", std::string(file.status().message()).c_str());
    std::exit(1);
  }
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(file->data()),
                                          file->size());
  const absl::StatusOr<follow::SafetensorsModel> model = follow::ParseSafetensors(bytes);
  if (!model.ok()) {
    std::fprintf(stderr, "%s: %s\n", path, std::string(model.status().message()).c_str());
    std::exit(1);
  }
  const absl::Span<const std::byte> weights = bytes.subspan(model->weights_at);
  return {*model, {weights.begin(), weights.end()}};
}

// Runs `prepare` and `work` for about `seconds`, and times only `work`.
double MedianSpeed(double seconds, size_t bytes, const std::function<void()>& prepare,
                   const std::function<void()>& work) {
  std::vector<double> times;
  const double end = ProcessorSeconds() + seconds;
  do {
    prepare();
    const double start = ProcessorSeconds();
    work();
    times.push_back(ProcessorSeconds() - start);
  } while (ProcessorSeconds() < end || times.size() < 3);
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  return static_cast<double>(bytes) / times[times.size() / 2] / 1e9;
}

int Measure(const Weights& before, const Weights& after, double seconds) {
  const compress::ElementType type = before.model.type;
  const auto encode = [&] {
    return follow::EncodePatch({.base_version = 0, .version = 1}, before.model.layout, type,
                               before.bytes, after.bytes);
  };
  const absl::StatusOr<std::vector<std::byte>> bytes = encode();
  if (!bytes.ok()) {
    std::fprintf(stderr, "%s\n", std::string(bytes.status().message()).c_str());
    return 1;
  }
  const absl::StatusOr<follow::Patch> patch = follow::Patch::Parse(*bytes);
  std::vector<std::byte> weights = before.bytes;
  const size_t size = weights.size(), chunk = follow::kChunkElements * BytesOf(type);
  const auto reset = [&] { std::memcpy(weights.data(), before.bytes.data(), size); };
  const auto nothing = [] {};
  const auto change = [&] {
    for (size_t i = 0; i < patch->parts().size(); ++i) {
      const follow::Patch::Part& part = patch->parts()[i];
      follow::ApplyChunk(type, part.method, part.payload,
                         absl::MakeSpan(weights).subspan(i * chunk, chunk));
    }
  };
  const auto parse = [&] { static_cast<void>(follow::Patch::Parse(*bytes)); };
  const double parse_speed = MedianSpeed(seconds, size, nothing, parse);
  const double change_speed = MedianSpeed(seconds, size, reset, change);
  const double both = MedianSpeed(seconds, size, reset, [&] {
    parse();
    change();
  });
  const double digest = MedianSpeed(
      seconds, size, nothing, [&] { static_cast<void>(follow::WeightsDigest(type, weights)); });
  bool equal = true;
  const double apply = MedianSpeed(seconds, size, reset, [&] {
    const absl::StatusOr<follow::Patch> again = follow::Patch::Parse(*bytes);
    equal &= again->Apply(again->header().base, absl::MakeSpan(weights)).ok();
  });
  const double encode_speed =
      MedianSpeed(seconds, size, nothing, [&] { static_cast<void>(encode()); });
  std::printf(
      "{\"patch_bytes\": %zu, \"equal\": %s, \"parse\": %.3f, \"change\": %.3f, "
      "\"parse_and_change\": %.3f, \"digest\": %.3f, \"apply_with_digest\": %.3f, "
      "\"encode_with_digests\": %.3f}\n",
      bytes->size(), equal && weights == after.bytes ? "true" : "false", parse_speed, change_speed,
      both, digest, apply, encode_speed);
  return equal && weights == after.bytes ? 0 : 1;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: patch_bench OLD.safetensors NEW.safetensors [SECONDS]\n");
    return 2;
  }
  const double seconds = argc == 4 ? std::atof(argv[3]) : 1;
  return sluice::bench::Measure(sluice::bench::Load(argv[1]), sluice::bench::Load(argv[2]),
                                seconds);
}
