// SPDX-License-Identifier: Apache-2.0
#include "protocol/tensor_table.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/fnv1a.h"
#include "base/text.h"

namespace sluice::protocol {
namespace {

absl::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
  }
  return "";
}

// Returns true if the strides visit every element of a block of elements() exactly once.
bool IsDense(const TensorInfo& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dimensions;  // (stride, size), innermost first.
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] > 1) dimensions.emplace_back(tensor.strides[i], tensor.shape[i]);
  }
  std::sort(dimensions.begin(), dimensions.end());
  int64_t wanted = 1;
  for (const auto& [stride, size] : dimensions) {
    if (stride != wanted) return false;
    wanted *= size;  // Never exceeds elements(), which has been checked.
  }
  return true;
}

// Returns a description of the tensor's problem, or an empty string.
std::string Problem(const TensorInfo& tensor) {
  if (tensor.name.empty()) return "has no name";
  if (tensor.name.size() > kMaxTensorNameSize) {
    return absl::StrCat("has a name of ", tensor.name.size(), " bytes; the limit is ",
                        kMaxTensorNameSize);
  }
  if (ValidText(tensor.name, kMaxTensorNameSize) != tensor.name) {
    return "has a name that is not valid UTF-8, so no message can carry it";
  }
  if (Name(tensor.dtype).empty()) {
    return absl::StrCat("has the unknown dtype ", static_cast<int>(tensor.dtype));
  }
  if (tensor.role != TensorRole::kTrained && tensor.role != TensorRole::kBuffer) {
    return absl::StrCat("has the unknown role ", static_cast<int>(tensor.role));
  }
  if (tensor.shape.size() > kMaxTensorRank) {
    return absl::StrCat("has ", tensor.shape.size(), " dimensions; the limit is ", kMaxTensorRank);
  }
  for (const int64_t size : tensor.shape) {
    if (size < 1) return absl::StrCat("has a dimension of ", size, "; the least is 1");
  }
  if (tensor.elements() > kMaxTensorElements) {
    return absl::StrCat("is larger than ", kMaxTensorElements, " elements");
  }
  if (tensor.strides.empty()) return "";
  if (tensor.strides.size() != tensor.shape.size()) {
    return absl::StrCat("has ", tensor.strides.size(), " strides for ", tensor.shape.size(),
                        " dimensions");
  }
  if (!IsDense(tensor)) {
    return absl::StrCat("has strides [", absl::StrJoin(tensor.strides, ", "),
                        "], which leave gaps or overlap; make it dense");
  }
  return "";
}

}  // namespace

uint64_t TensorInfo::elements() const {
  constexpr uint64_t kLargest = std::numeric_limits<uint64_t>::max();
  uint64_t product = 1;
  for (const int64_t size : shape) {
    if (size < 1) return 0;
    const auto factor = static_cast<uint64_t>(size);
    product = product > kLargest / factor ? kLargest : product * factor;
  }
  return product;
}

absl::Status ValidateTensorTable(const TensorTable& table) {
  if (table.empty()) {
    return absl::InvalidArgumentError(
        "tensor table: no tensors; the model has no parameter with a gradient");
  }
  if (TrainedTensors(table) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor table: tensor 0, ", ToString(table[0]),
                     ", is a buffer; trained tensors come first, and there must be at least one"));
  }
  if (table.size() > kMaxTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor table: ", table.size(), " tensors; the limit is ", kMaxTensors));
  }
  std::set<absl::string_view> names;
  for (size_t i = 0; i < table.size(); ++i) {
    std::string problem = Problem(table[i]);
    if (problem.empty() && !names.insert(table[i].name).second) {
      problem = "has the name of an earlier tensor";
    }
    if (problem.empty() && i > 0 && table[i].role < table[i - 1].role) {
      problem = "is trained and comes after a buffer; put buffers last";
    }
    if (problem.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor table: tensor ", i, ", ", ToString(table[i]), ", ", problem));
  }
  return absl::OkStatus();
}

uint64_t HashTensorTable(const TensorTable& table) {
  Fnv1a hash;
  hash.Add(table.size());
  for (const TensorInfo& tensor : table) {
    hash.Add(tensor.name.size());
    hash.Add(absl::string_view(tensor.name));
    for (const std::vector<int64_t>* numbers : {&tensor.shape, &tensor.strides}) {
      hash.Add(numbers->size());
      for (const int64_t number : *numbers) hash.Add(static_cast<uint64_t>(number));
    }
    // A table without buffers has the same hash as in versions without buffers.
    hash.Add(static_cast<uint64_t>(tensor.dtype) | static_cast<uint64_t>(tensor.role) << 8);
  }
  return hash.value();
}

std::string DescribeDifference(const TensorTable& here, const TensorTable& there) {
  const size_t both = std::min(here.size(), there.size());
  for (size_t i = 0; i < both; ++i) {
    if (here[i] == there[i]) continue;
    std::string ours = ToString(here[i]);
    std::string theirs = ToString(there[i]);
    if (ours == theirs) {
      absl::StrAppend(&ours, " with strides [", absl::StrJoin(here[i].strides, ", "), "]");
      absl::StrAppend(&theirs, " with strides [", absl::StrJoin(there[i].strides, ", "), "]");
    }
    return absl::StrCat("tensor ", i, " is ", ours, " here and ", theirs, " there");
  }
  if (here.size() == there.size()) return "";
  const bool more_here = here.size() > there.size();
  return absl::StrCat(here.size(), " tensors here and ", there.size(), " there; tensor ", both,
                      ", ", ToString((more_here ? here : there)[both]), ", is only ",
                      more_here ? "here" : "there");
}

uint32_t TrainedTensors(const TensorTable& table) {
  const auto end = std::find_if(table.begin(), table.end(), [](const TensorInfo& tensor) {
    return tensor.role != TensorRole::kTrained;
  });
  return static_cast<uint32_t>(end - table.begin());
}

uint64_t TrainedElements(const TensorTable& table) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < TrainedTensors(table); ++i) total += table[i].elements();
  return total;
}

uint64_t TotalElements(const TensorTable& table) {
  uint64_t total = 0;
  for (const TensorInfo& tensor : table) total += tensor.elements();
  return total;
}

std::string ToString(const TensorInfo& tensor) {
  // A name may come from another machine, so it is escaped and shortened before a terminal shows
  // it.
  const absl::string_view name = absl::string_view(tensor.name).substr(0, kMaxTensorNameSize);
  return absl::StrCat(absl::CHexEscape(name), " [", absl::StrJoin(tensor.shape, ", "), "] ",
                      Name(tensor.dtype), tensor.role == TensorRole::kBuffer ? " buffer" : "");
}

}  // namespace sluice::protocol
