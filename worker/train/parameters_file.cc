#include "worker/train/parameters_file.h"

#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/torch.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// As torch::pickle_save does, but with no TorchScript type tags: those are globals that torch.load
// refuses to look up in its safe mode (weights_only), which is the default of newer PyTorch.
std::string PickleUntagged(const c10::IValue& value) {
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
  writer.writeEndOfFile();
  return file;
}

absl::Status WriteThenRename(const std::string& bytes, const std::string& path) {
  const std::string unfinished = absl::StrCat(path, ".unfinished");
  {
    std::ofstream file(unfinished, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) {
      return absl::UnavailableError(
          absl::StrCat("cannot write ", unfinished, ": ", std::strerror(errno)));
    }
  }
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot rename ", unfinished, " to ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace

std::string FormatParameters(const NamedTensors& tensors) {
  c10::Dict<std::string, at::Tensor> state;
  for (const auto& [name, tensor] : tensors) state.insert(name, tensor.detach());
  return PickleUntagged(state);
}

std::string FormatParameters(const torch::nn::Module& module) {
  return FormatParameters(TensorsOf(module));
}

absl::Status SaveParameters(const std::string& bytes, const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot make the folder ", folder.string(), ": ", error.message()));
  }
  return WriteThenRename(bytes, path);
}

}  // namespace sluice
