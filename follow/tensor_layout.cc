// SPDX-License-Identifier: Apache-2.0
#include "follow/tensor_layout.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/text.h"

namespace sluice::follow {
namespace {

absl::Status RefuseShape(const NamedShape& tensor, absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor `", EscapeControls(tensor.name), "` ", problem));
}

absl::Status CheckName(const NamedShape& tensor) {
  if (tensor.name.empty() || tensor.name == "__metadata__") {
    return RefuseShape(tensor, "has a reserved name");
  }
  if (tensor.name.size() > kTensorNameMax) {
    return RefuseShape(tensor, absl::StrCat("has a name of ", tensor.name.size(),
                                            " bytes; at most ", kTensorNameMax, " are allowed"));
  }
  if (ValidText(tensor.name) != tensor.name)
    return RefuseShape(tensor, "has a name that is not UTF-8");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> ElementsOf(const NamedShape& tensor) {
  uint64_t elements = 1;
  for (const uint64_t size : tensor.shape) {
    if (size > kElementsMax || (size > 0 && elements > kElementsMax / size)) {
      return RefuseShape(tensor, absl::StrCat("has more than ", kElementsMax, " elements"));
    }
    elements *= size;
  }
  return elements;
}

absl::StatusOr<uint64_t> CheckLayout(const TensorLayout& layout) {
  if (layout.size() > kTensorsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the model has ", layout.size(), " tensors; at most ", kTensorsMax, " are allowed"));
  }
  std::set<absl::string_view> names;
  uint64_t total = 0;
  size_t bytes = sizeof(uint32_t);
  for (const NamedShape& tensor : layout) {
    if (absl::Status name = CheckName(tensor); !name.ok()) return name;
    if (!names.insert(tensor.name).second) return RefuseShape(tensor, "occurs twice");
    if (tensor.shape.size() > kRankMax) {
      return RefuseShape(tensor, absl::StrCat("has ", tensor.shape.size(), " dimensions; at most ",
                                              kRankMax, " are allowed"));
    }
    const absl::StatusOr<uint64_t> elements = ElementsOf(tensor);
    if (!elements.ok()) return elements.status();
    total += *elements;
    bytes += tensor.name.size() + 3 + tensor.shape.size() * sizeof(uint64_t);
    if (total > kElementsMax || bytes > kLayoutBytesMax) {
      return RefuseShape(tensor,
                         absl::StrCat("exceeds the limit of ", kElementsMax, " elements or of ",
                                      kLayoutBytesMax, " bytes of names and shapes"));
    }
  }
  return total;
}

std::vector<std::byte> SerializeLayout(const TensorLayout& layout) {
  std::vector<std::byte> bytes;
  ByteWriter writer(&bytes);
  writer.Write(static_cast<uint32_t>(layout.size()));
  for (const NamedShape& tensor : layout) {
    writer.Write(static_cast<uint16_t>(tensor.name.size()));
    writer.Write(static_cast<uint8_t>(tensor.shape.size()));
    writer.WriteBytes({reinterpret_cast<const std::byte*>(tensor.name.data()), tensor.name.size()});
    for (const uint64_t size : tensor.shape) writer.Write(size);
  }
  return bytes;
}

absl::StatusOr<TensorLayout> ParseLayout(absl::Span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto count = reader.Read<uint32_t>();
  TensorLayout layout;
  // Every tensor takes bytes, so a wrong count ends the loop.
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    const auto name_size = reader.Read<uint16_t>();
    const auto rank = reader.Read<uint8_t>();
    const absl::Span<const std::byte> name = reader.ReadBytes(name_size);
    NamedShape tensor{.name = std::string(reinterpret_cast<const char*>(name.data()), name.size()),
                      .shape = {}};
    for (uint8_t j = 0; j < rank && reader.ok(); ++j) {
      tensor.shape.push_back(reader.Read<uint64_t>());
    }
    layout.push_back(std::move(tensor));
  }
  if (!reader.ok() || reader.remaining() > 0) {
    return absl::InvalidArgumentError(absl::StrCat("the tensor table has ", bytes.size(),
                                                   " bytes, which do not hold exactly ", count,
                                                   " tensors"));
  }
  if (const absl::StatusOr<uint64_t> elements = CheckLayout(layout); !elements.ok()) {
    return elements.status();
  }
  return layout;
}

Digest LayoutDigest(const TensorLayout& layout) { return Sha256Of(SerializeLayout(layout)); }

}  // namespace sluice::follow
