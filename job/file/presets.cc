// SPDX-License-Identifier: Apache-2.0
#include "job/file/presets.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice::job {
namespace {

constexpr std::array kPresets = {
    Preset{
        .name = "diloco",
        .method = "DiLoCo: many local steps of AdamW, then one outer step of Nesterov's momentum",
        .source = "Douillard et al. 2023, arXiv:2311.08105",
        .differs = "The inner AdamW keeps its state over an exchange, as in the paper.\n"
                   "Set lr_schedule: the paper's is cosine with warmup.",
        .keys = "mode: local_sgd\n"
                "local_steps: 500\n"
                "outer_optimizer: nesterov\n"
                "outer_lr: 0.7\n"
                "outer_momentum: 0.9\n"
                "optimizer: {name: adamw}\n"},
    Preset{.name = "streaming_diloco",
           .method =
               "Streaming DiLoCo: fragments of the model are exchanged in turns, with 4 bits, "
               "during the training",
           .source = "Douillard et al. 2025, arXiv:2501.18512",
           .differs = "Fragments are equal parts of the model instead of three layers each.\n"
                      "Values are 4-bit integers with a scale per 256 elements and error feedback, "
                      "instead of 4-bit floats without.\n"
                      "The paper does not state its outer rate; 0.7 is DiLoCo's.",
           .keys = "mode: local_sgd\n"
                   "local_steps: 100\n"
                   "fragments: 4\n"
                   "fragment_delay: 5\n"
                   "merge_alpha: 0.5\n"
                   "outer_optimizer: nesterov\n"
                   "outer_lr: 0.7\n"
                   "outer_momentum: 0.9\n"
                   "optimizer: {name: adamw}\n"
                   "compression: {uplink: int4}\n"},
    Preset{.name = "decoupled_diloco",
           .method =
               "Decoupled DiLoCo: streaming with a quorum, workers that come and go, and weights "
               "by samples and speed",
           .source = "2026, arXiv:2604.21428",
           .differs =
               "8 fragments instead of 24, because an exchange ends before the next one begins.\n"
               "Late work joins the next exchange of its fragment, damped by its age, instead "
               "of being dropped.\n"
               "Each chunk has its own radius; embeddings have no exception.\n"
               "The paper states no outer rate and momentum; these are DiLoCo's.",
           .keys = "mode: local_sgd\n"
                   "local_steps: 24\n"
                   "fragments: 8\n"
                   "fragment_delay: 2\n"
                   "membership: elastic\n"
                   "min_workers: 1\n"
                   "quorum: 1\n"
                   "straggler_timeout: 1s\n"
                   "late_decay: 0.5\n"
                   "merge_weights: tokens\n"
                   "merge_method: rda\n"
                   "outer_optimizer: nesterov\n"
                   "outer_lr: 0.7\n"
                   "outer_momentum: 0.9\n"
                   "optimizer: {name: adamw}\n"
                   "compression: {uplink: bf16, downlink: bf16}\n"},
    Preset{.name = "sparse_loco",
           .method = "SparseLoCo: local steps, then the largest 64 of each 4096 changes with two "
                     "bits each, and a residual that decays",
           .source = "Sarfi et al. 2025, arXiv:2508.15706",
           .differs =
               "Two bits are a sign and one of two magnitudes; the paper's quantizer loses the "
               "sign of small values.\n"
               "Shards answer with the largest 6.25 % of the mean, enough for four workers, and "
               "feed the rest back; the paper's workers gather all contributions.\n"
               "The mean is over all workers, as in the paper. The published code divides by the "
               "senders of each value: merge_over: senders.\n"
               "Shards apply outer_lr once; the published code multiplies by it twice.",
           .keys = "mode: local_sgd\n"
                   "local_steps: 30\n"
                   "outer_optimizer: average\n"
                   "outer_lr: 1\n"
                   "optimizer: {name: adamw, clip_norm: 1}\n"
                   "compression: {uplink: 'topk_exact:1.5625%,scope=block+2bit/ef:0.95', downlink: "
                   "'topk:6.25%+int8'}\n"},
    Preset{.name = "muloco",
           .method = "MuLoCo: DiLoCo with Muon in place of AdamW",
           .source = "Therien et al. 2025, arXiv:2505.23725",
           .differs =
               "Muon computes in float32 instead of bfloat16.\n"
               "A matrix's step is scaled by 0.2 * sqrt(max(rows, columns)), so that AdamW's "
               "rate suits it.\n"
               "Outer rate and momentum are those of the published code for eight workers; "
               "the paper uses 0.7 and 0.6 for one.",
           .keys = "mode: local_sgd\n"
                   "local_steps: 30\n"
                   "outer_optimizer: nesterov\n"
                   "outer_lr: 0.9\n"
                   "outer_momentum: 0.8\n"
                   "optimizer: {name: muon, beta1: 0.9, beta2: 0.99}\n"},
    Preset{.name = "dgc",
           .method = "Deep Gradient Compression: 0.1 % of the values, with momentum correction, "
                     "clipping and a warmup of the sparsity",
           .source = "Lin et al. 2018, arXiv:1712.01887",
           .differs = "The warmup has a number of steps, not four epochs.\n"
                      "Shards answer with the largest 1 % of the mean and feed the rest back; the "
                      "paper's workers gather all contributions.\n"
                      "Workers clip the mean instead of their own gradients.",
           .keys = "mode: sync\n"
                   "optimizer: {name: sgd, momentum: 0, clip_norm: 1}\n"
                   "compression: {uplink: 'topk:0.1%,scope=tensor/dgc:0.9,warmup=1000', downlink: "
                   "'topk:1%'}\n"},
    Preset{.name = "powersgd",
           .method = "PowerSGD: matrices as products of two thin ones, with error feedback",
           .source = "Vogels et al. 2019, arXiv:1905.13727",
           .differs = "Each worker factors its own matrices, and the shard answers with a factored "
                      "mean; in the paper, workers average the factors.\n"
                      "The power iteration has its own start on each link.",
           .keys = "mode: sync\n"
                   "optimizer: {name: sgd, momentum: 0.9}\n"
                   "compression: {uplink: 'powersgd:4', downlink: 'powersgd:4'}\n"},
    Preset{.name = "onebit",
           .method = "1-bit SGD: signs with two means per block and error feedback, both ways",
           .source = "Seide et al. 2014, Interspeech",
           .differs = "Means are of 1024 consecutive elements instead of a column of the matrix.\n"
                      "The paper begins with uncompressed steps; use control: {policy: schedule} "
                      "for that.",
           .keys = "mode: sync\n"
                   "compression: {uplink: onebit, downlink: onebit}\n"},
};

}  // namespace

absl::Span<const Preset> Presets() { return kPresets; }

std::vector<absl::string_view> PresetNames() {
  std::vector<absl::string_view> names;
  names.reserve(kPresets.size());
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

const Preset* FindPreset(absl::string_view name) {
  const auto* const found = std::find_if(kPresets.begin(), kPresets.end(),
                                         [&](const Preset& preset) { return preset.name == name; });
  return found == kPresets.end() ? nullptr : found;
}

std::string PresetText(const Preset& preset) {
  std::string text = absl::StrCat("# ", preset.method, ".\n# ", preset.source, "\n");
  for (const absl::string_view difference : absl::StrSplit(preset.differs, '\n')) {
    absl::StrAppend(&text, "# Differs: ", difference, "\n");
  }
  return absl::StrCat(text, preset.keys);
}

}  // namespace sluice::job
