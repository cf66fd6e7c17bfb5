// SPDX-License-Identifier: Apache-2.0
#include "worker/train/parameters_file.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/torch.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "follow/safetensors.h"
#include "protocol/checkpoint/durable_file.h"

namespace sluice::worker {
namespace {

constexpr char kNoteRecord[] = "note.txt";
constexpr size_t kNoteBytesMax = 4096;

// Returns the name of a type in safetensors; null if there is none.
const char* SafetensorsType(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "F32";
    case at::kDouble:
      return "F64";
    case at::kHalf:
      return "F16";
    case at::kBFloat16:
      return "BF16";
    case at::kLong:
      return "I64";
    case at::kInt:
      return "I32";
    case at::kByte:
      return "U8";
    case at::kBool:
      return "BOOL";
    default:
      return nullptr;
  }
}

// Like torch::pickle_save, but without TorchScript type tags. Those are globals that torch.load
// refuses to look up in its safe mode (weights_only), the default of newer PyTorch versions.
std::string PickleUntagged(const c10::IValue& value, absl::string_view note) {
  std::vector<char> pickled;
  torch::jit::Pickler pickler(
      [&](const char* bytes, size_t size) { pickled.insert(pickled.end(), bytes, bytes + size); },
      /*tensor_table=*/nullptr, /*type_renamer=*/nullptr, /*memoized_class_types=*/nullptr,
      /*get_tensor_id=*/nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  std::string file;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* bytes, size_t size) {
    file.append(static_cast<const char*>(bytes), size);
    return size;
  });
  writer.writeRecord("data.pkl", pickled.data(), pickled.size());
  for (size_t i = 0; i < pickler.tensorData().size(); ++i) {
    const at::Tensor& tensor = pickler.tensorData()[i];
    writer.writeRecord(absl::StrCat("data/", i), tensor.storage().data(),
                       tensor.storage().nbytes());
  }
  if (!note.empty()) writer.writeRecord(kNoteRecord, note.data(), note.size());
  writer.writeEndOfFile();
  return file;
}

}  // namespace

std::string FormatParameters(const NamedTensors& tensors, absl::string_view note) {
  c10::Dict<std::string, at::Tensor> state;
  for (const auto& [name, tensor] : tensors) state.insert(name, tensor.detach().to(at::kCPU));
  return PickleUntagged(state, note);
}

std::string FormatParameters(const torch::nn::Module& module) {
  return FormatParameters(TensorsOf(module));
}

absl::StatusOr<std::string> FormatSafetensors(const NamedTensors& tensors) {
  std::vector<follow::SafetensorsEntry> entries;
  std::string values;
  for (const auto& [name, tensor] : tensors) {
    const char* const type = SafetensorsType(tensor.scalar_type());
    if (type == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", name, " has type ", c10::toString(tensor.scalar_type()),
                       ", for which the safetensors format has no name"));
    }
    const at::Tensor rows = tensor.detach().to(at::kCPU).contiguous();
    values.append(static_cast<const char*>(rows.data_ptr()), rows.nbytes());
    entries.push_back({.name = name,
                       .type = type,
                       .shape = {rows.sizes().begin(), rows.sizes().end()},
                       .bytes = rows.nbytes()});
  }
  return follow::FormatSafetensorsHeader(entries) + values;
}

absl::Status SaveParameters(const std::string& bytes, const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) {
    if (absl::Status made = protocol::MakeFolder(folder); !made.ok()) return made;
  }
  return protocol::WriteDurably(path, bytes).status();
}

std::optional<std::string> ReadNote(const std::string& path) {
  try {
    caffe2::serialize::PyTorchStreamReader reader(path);
    if (!reader.hasRecord(kNoteRecord) || reader.getRecordSize(kNoteRecord) > kNoteBytesMax) {
      return std::nullopt;
    }
    std::string note(reader.getRecordSize(kNoteRecord), '\0');
    reader.getRecord(kNoteRecord, note.data(), note.size());
    return note;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace sluice::worker
