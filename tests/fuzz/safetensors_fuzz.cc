// SPDX-License-Identifier: Apache-2.0
// Fuzzer for safetensors files: any bytes must be refused or give a model whose header, written
// again, gives the same model. Input: a JSON header, whose length the fuzzer adds, up to the first
// line break, and the values.

#include <cstring>

#include "base/check.h"
#include "follow/safetensors.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice::follow {
namespace {

void CheckModel(const std::vector<std::byte>& file) {
  const absl::StatusOr<SafetensorsModel> model = ParseSafetensors(file);
  if (!model.ok()) return;
  const absl::StatusOr<uint64_t> elements = CheckLayout(model->layout);
  Check(elements.ok(), "a model has a valid layout");
  Check(model->weights_at + *elements * BytesOf(model->type) == file.size(),
        "the weights end the file");
  const absl::StatusOr<TensorLayout> layout = ParseLayout(SerializeLayout(model->layout));
  Check(layout.ok() && *layout == model->layout, "a layout survives as bytes");

  const std::string header = FormatSafetensorsHeader(model->layout, model->type);
  std::vector<std::byte> written(header.size());
  std::memcpy(written.data(), header.data(), header.size());
  written.insert(written.end(), file.begin() + static_cast<ptrdiff_t>(model->weights_at),
                 file.end());
  const absl::StatusOr<SafetensorsModel> again = ParseSafetensors(written);
  Check(again.ok(), "a written header can be read");
  // An empty model has no type, and empty tensors may change places.
  Check(model->layout.empty() || again->type == model->type, "the type survives");
  Check(again->layout.size() == model->layout.size(), "the tensors survive");
}

}  // namespace
}  // namespace sluice::follow

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(data);
  sluice::follow::CheckModel({bytes, bytes + size});
  sluice::FuzzInput input(data, size);
  const std::string header = input.Line();
  const absl::Span<const std::byte> values = input.Rest();
  const uint64_t header_size = header.size();
  std::vector<std::byte> file(sizeof(header_size) + header.size());
  std::memcpy(file.data(), &header_size, sizeof(header_size));
  std::memcpy(file.data() + sizeof(header_size), header.data(), header.size());
  file.insert(file.end(), values.begin(), values.end());
  sluice::follow::CheckModel(file);
  return 0;
}
