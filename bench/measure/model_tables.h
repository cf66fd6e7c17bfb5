// SPDX-License-Identifier: Apache-2.0
// ModelTable: the trainable tensors of well-known models, with name, shape and order, for
// benchmarks and synthetic workers. The models themselves are not needed.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "protocol/tensor_table.h"

namespace sluice::bench {

// The names are resnet50 and vgg16, as in torchvision; bert-base (uncased, encoder and pooler) and
// gpt2 (the head is the embedding), as in HuggingFace.
absl::Span<const absl::string_view> ModelTableNames();

// Fails with INVALID_ARGUMENT for an unknown name, and lists the known names and the nearest one.
absl::StatusOr<protocol::TensorTable> ModelTable(absl::string_view name);

// Returns the tensors with their outermost dimensions reduced in proportion, to about `elements`
// elements in total, for quick measurements. More tensors are then small, so ratios differ from the
// full model's. With 0, or with at least the table's number of elements, returns the table
// unchanged.
protocol::TensorTable ShrinkTable(const protocol::TensorTable& table, uint64_t elements);

}  // namespace sluice::bench
