// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/tensor_table_message.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::protocol {
namespace {

constexpr int kDimensionsMax = 16;  // Limit per tensor.
constexpr int kNameMax = 512;       // Limit per tensor.

}  // namespace

void TableToProto(const TensorTable& table, v1::TensorTable* message) {
  for (const TensorInfo& tensor : table) {
    v1::TensorInfo* info = message->add_tensors();
    info->set_name(tensor.name);
    info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    info->mutable_strides()->Add(tensor.strides.begin(), tensor.strides.end());
    info->set_dtype(static_cast<v1::DType>(tensor.dtype));
    info->set_role(static_cast<v1::TensorRole>(tensor.role));
  }
  message->set_hash(HashTensorTable(table));
}

absl::StatusOr<TensorTable> TableFromProto(const v1::TensorTable& message) {
  if (const size_t bytes = message.ByteSizeLong(); bytes > kTableBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("tensor table: ", bytes, " bytes of ",
                                                   message.tensors_size(), " tensors; at most ",
                                                   kTableBytesMax));
  }
  if (message.tensors_size() > static_cast<int>(kMaxTensors)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor table: ", message.tensors_size(), " tensors; at most ", kMaxTensors));
  }
  TensorTable out;
  out.reserve(message.tensors_size());
  for (const v1::TensorInfo& tensor : message.tensors()) {
    if (tensor.name().size() > kNameMax || tensor.shape_size() > kDimensionsMax ||
        tensor.strides_size() > kDimensionsMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor table: tensor ", out.size(), " (", tensor.name().substr(0, kNameMax),
          ") has a name of ", tensor.name().size(), " characters, ", tensor.shape_size(),
          " dimensions; at most ", kNameMax, " and ", kDimensionsMax));
    }
    if (tensor.dtype() < v1::DTYPE_FLOAT32 || tensor.dtype() > v1::DTYPE_BFLOAT16) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor table: ", tensor.name(), " has the unknown type ", tensor.dtype()));
    }
    if (tensor.role() < v1::TENSOR_ROLE_TRAINED || tensor.role() > v1::TENSOR_ROLE_BUFFER) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor table: ", tensor.name(), " has the unknown role ", tensor.role()));
    }
    out.push_back({.name = tensor.name(),
                   .shape = {tensor.shape().begin(), tensor.shape().end()},
                   .strides = {tensor.strides().begin(), tensor.strides().end()},
                   .dtype = static_cast<DType>(tensor.dtype()),
                   .role = static_cast<TensorRole>(tensor.role())});
  }
  if (message.hash() != 0 && message.hash() != HashTensorTable(out)) {
    return absl::InvalidArgumentError("tensor table: its hash does not match its tensors");
  }
  return out;
}

}  // namespace sluice::protocol
