#include "worker/train/parameters_file.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/torch.h>

#include <exception>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "protocol/checkpoint/durable_file.h"

namespace sluice::worker {
namespace {

constexpr char kNoteRecord[] = "note.txt";
constexpr size_t kNoteBytesMax = 4096;

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
