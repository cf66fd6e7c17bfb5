// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/model_tables.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"

namespace sluice::bench {
namespace {

constexpr absl::string_view kNames[] = {"resnet50", "vgg16", "bert-base", "gpt2"};

void Add(std::string name, std::vector<int64_t> shape, protocol::TensorTable* table) {
  protocol::TensorInfo& tensor = table->emplace_back();
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
}

// Adds a weight of any shape and a vector, for a layer or a norm.
void AddPair(const std::string& name, std::vector<int64_t> weight, int64_t bias,
             protocol::TensorTable* table) {
  Add(name + ".weight", std::move(weight), table);
  Add(name + ".bias", {bias}, table);
}

void AddBottleneck(const std::string& name, int64_t in, int64_t width, bool first,
                   protocol::TensorTable* table) {
  const int64_t out = 4 * width;
  Add(name + ".conv1.weight", {width, in, 1, 1}, table);
  AddPair(name + ".bn1", {width}, width, table);
  Add(name + ".conv2.weight", {width, width, 3, 3}, table);
  AddPair(name + ".bn2", {width}, width, table);
  Add(name + ".conv3.weight", {out, width, 1, 1}, table);
  AddPair(name + ".bn3", {out}, out, table);
  if (!first) return;
  Add(name + ".downsample.0.weight", {out, in, 1, 1}, table);
  AddPair(name + ".downsample.1", {out}, out, table);
}

protocol::TensorTable ResNet50() {
  constexpr int kBlocks[] = {3, 4, 6, 3};
  protocol::TensorTable table;
  Add("conv1.weight", {64, 3, 7, 7}, &table);
  AddPair("bn1", {64}, 64, &table);
  int64_t in = 64;
  for (int layer = 0; layer < 4; ++layer) {
    const int64_t width = int64_t{64} << layer;
    for (int block = 0; block < kBlocks[layer]; ++block) {
      AddBottleneck(absl::StrCat("layer", layer + 1, ".", block), in, width, block == 0, &table);
      in = 4 * width;
    }
  }
  AddPair("fc", {1000, 2048}, 1000, &table);
  return table;
}

protocol::TensorTable Vgg16() {
  constexpr std::pair<int, int64_t> kConvolutions[] = {
      {0, 64},   {2, 64},   {5, 128},  {7, 128},  {10, 256}, {12, 256}, {14, 256},
      {17, 512}, {19, 512}, {21, 512}, {24, 512}, {26, 512}, {28, 512}};
  protocol::TensorTable table;
  int64_t in = 3;
  for (const auto& [index, out] : kConvolutions) {
    AddPair(absl::StrCat("features.", index), {out, in, 3, 3}, out, &table);
    in = out;
  }
  AddPair("classifier.0", {4096, in * 7 * 7}, 4096, &table);
  AddPair("classifier.3", {4096, 4096}, 4096, &table);
  AddPair("classifier.6", {1000, 4096}, 1000, &table);
  return table;
}

protocol::TensorTable BertBase() {
  constexpr int64_t kWidth = 768, kInner = 3072;
  protocol::TensorTable table;
  Add("embeddings.word_embeddings.weight", {30522, kWidth}, &table);
  Add("embeddings.position_embeddings.weight", {512, kWidth}, &table);
  Add("embeddings.token_type_embeddings.weight", {2, kWidth}, &table);
  AddPair("embeddings.LayerNorm", {kWidth}, kWidth, &table);
  for (int i = 0; i < 12; ++i) {
    const std::string layer = absl::StrCat("encoder.layer.", i, ".");
    for (const char* part : {"query", "key", "value"}) {
      AddPair(absl::StrCat(layer, "attention.self.", part), {kWidth, kWidth}, kWidth, &table);
    }
    AddPair(layer + "attention.output.dense", {kWidth, kWidth}, kWidth, &table);
    AddPair(layer + "attention.output.LayerNorm", {kWidth}, kWidth, &table);
    AddPair(layer + "intermediate.dense", {kInner, kWidth}, kInner, &table);
    AddPair(layer + "output.dense", {kWidth, kInner}, kWidth, &table);
    AddPair(layer + "output.LayerNorm", {kWidth}, kWidth, &table);
  }
  AddPair("pooler.dense", {kWidth, kWidth}, kWidth, &table);
  return table;
}

// Linear layers of GPT-2 store the transpose: rows are inputs.
protocol::TensorTable Gpt2() {
  constexpr int64_t kWidth = 768;
  protocol::TensorTable table;
  Add("transformer.wte.weight", {50257, kWidth}, &table);
  Add("transformer.wpe.weight", {1024, kWidth}, &table);
  for (int i = 0; i < 12; ++i) {
    const std::string layer = absl::StrCat("transformer.h.", i, ".");
    AddPair(layer + "ln_1", {kWidth}, kWidth, &table);
    AddPair(layer + "attn.c_attn", {kWidth, 3 * kWidth}, 3 * kWidth, &table);
    AddPair(layer + "attn.c_proj", {kWidth, kWidth}, kWidth, &table);
    AddPair(layer + "ln_2", {kWidth}, kWidth, &table);
    AddPair(layer + "mlp.c_fc", {kWidth, 4 * kWidth}, 4 * kWidth, &table);
    AddPair(layer + "mlp.c_proj", {4 * kWidth, kWidth}, kWidth, &table);
  }
  AddPair("transformer.ln_f", {kWidth}, kWidth, &table);
  return table;
}

}  // namespace

absl::Span<const absl::string_view> ModelTableNames() { return kNames; }

absl::StatusOr<protocol::TensorTable> ModelTable(absl::string_view name) {
  if (name == "resnet50") return ResNet50();
  if (name == "vgg16") return Vgg16();
  if (name == "bert-base") return BertBase();
  if (name == "gpt2") return Gpt2();
  const absl::string_view nearest = NearestName(name, kNames);
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no table of a model `", name, "`",
      nearest.empty() ? std::string() : absl::StrCat("; did you mean `", nearest, "`?"),
      " (known: ", absl::StrJoin(kNames, ", "), ")"));
}

protocol::TensorTable ShrinkTable(const protocol::TensorTable& table, uint64_t elements) {
  const uint64_t total = protocol::TotalElements(table);
  if (elements == 0 || elements >= total) return table;
  const double share = static_cast<double>(elements) / static_cast<double>(total);
  protocol::TensorTable shrunk = table;
  for (protocol::TensorInfo& tensor : shrunk) {
    const auto cut = static_cast<int64_t>(static_cast<double>(tensor.shape[0]) * share);
    tensor.shape[0] = std::max<int64_t>(cut, 1);
  }
  return shrunk;
}

}  // namespace sluice::bench
