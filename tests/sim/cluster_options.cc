#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "tests/sim/cluster.h"

namespace sluice {

ClusterOptions RandomClusterOptions(uint64_t seed) {
  static constexpr absl::string_view kSpecs[] = {"none",        "fp16",        "bf16",
                                                 "int8",        "topk:5%",     "topk:10%+int4",
                                                 "ternary:0.5", "ternary:0.5", "topk:1%+int4"};
  CounterRandom random(seed, 4);
  ClusterOptions options;
  options.data_seed = seed;
  options.network_seed = seed;
  options.ranks = 1 + static_cast<uint32_t>(random.Below(4));
  options.shards = 1 + static_cast<uint32_t>(random.Below(3));
  options.steps = 2 + random.Below(5);
  options.compression.uplink = *ParseCodecSpec(kSpecs[random.Below(std::size(kSpecs))]);
  options.compression.downlink = random.Below(4) == 0
                                     ? options.compression.uplink
                                     : *ParseCodecSpec(kSpecs[random.Below(std::size(kSpecs))]);
  options.compression.min_elements = random.Below(2) == 0 ? 0 : 100;
  options.compression.layout = {.chunk_elements = 64u << random.Below(4),
                                .bundle_elements = 64u << random.Below(4)};
  options.window_bytes = uint64_t{64} << random.Below(8);
  options.tight_memory = random.Below(4) == 0;
  options.parameters_agree = random.Below(4) != 0;
  options.skip_share = random.Below(2) == 0 ? 0.0 : 0.2;
  options.nan_share = random.Below(2) == 0 ? 0.0 : 0.2;
  options.break_share = random.Below(4) == 0 ? 0.0 : 0.04;
  return options;
}

std::string Describe(const ClusterOptions& options) {
  return absl::StrCat("data seed ", options.data_seed, ", network seed ", options.network_seed,
                      ": ", options.ranks, " ranks, ", options.shards, " shards, ", options.steps,
                      " steps, up ", ToString(options.compression.uplink), ", down ",
                      ToString(options.compression.downlink), ", window ", options.window_bytes,
                      options.tight_memory ? ", tight memory" : "",
                      options.parameters_agree ? "" : ", with step 0");
}

}  // namespace sluice
