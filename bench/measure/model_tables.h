// ModelTable: the trainable tensors of well-known models, by name, shape and order, without the
// models: what benchmarks and synthetic workers exchange.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "protocol/tensor_table.h"

namespace sluice::bench {

// resnet50 and vgg16 as torchvision has them; bert-base (uncased, encoder and pooler) and gpt2 (its
// head is the embedding) as HuggingFace has them.
absl::Span<const absl::string_view> ModelTableNames();

// INVALID_ARGUMENT names the known ones, and the nearest.
absl::StatusOr<protocol::TensorTable> ModelTable(absl::string_view name);

// The same tensors with their outermost dimensions cut down alike, to about `elements` in all: for
// quick looks. More of them are small then, so that ratios are not the model's. 0, or as many as
// there are: the table as it is.
protocol::TensorTable ShrinkTable(const protocol::TensorTable& table, uint64_t elements);

}  // namespace sluice::bench
