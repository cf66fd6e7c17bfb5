// SPDX-License-Identifier: Apache-2.0
#include "worker/torch/trainable_parameters.h"

#include <openssl/evp.h>
#include <torch/types.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice::worker {
namespace {

absl::Status Refuse(const std::string& name, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("parameter ", name, " ", why));
}

std::optional<compress::ElementType> ElementTypeOf(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return compress::ElementType::kFloat32;
    case at::kBFloat16:
      return compress::ElementType::kBfloat16;
    case at::kHalf:
      return compress::ElementType::kFloat16;
    default:
      return std::nullopt;
  }
}

// If `value` is undefined, the master starts with the parameter's own values.
at::Tensor MakeMaster(const at::Tensor& parameter, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  at::Tensor master =
      at::empty_strided(parameter.sizes(), parameter.strides(),
                        at::TensorOptions().dtype(at::kFloat).device(parameter.device()));
  master.copy_(value.defined() ? value : parameter);
  return master.requires_grad_(true);
}

absl::Status CheckTrainable(const std::string& name, const at::Tensor& tensor, at::Device device) {
  if (tensor.layout() != at::kStrided) {
    return Refuse(name, "is sparse: only dense parameters can be trained; use a dense layout");
  }
  if (tensor.device() != device) {
    return Refuse(name, absl::StrCat("is on ", tensor.device().str(), ", others are on ",
                                     device.str(), ": move the whole module to one device"));
  }
  if (!ElementTypeOf(tensor.scalar_type()).has_value()) {
    return Refuse(name, absl::StrCat("is of type ", c10::toString(tensor.scalar_type()),
                                     ": only float32, bfloat16 and float16 parameters can be "
                                     "trained; convert it with module.to(torch::kFloat32), or "
                                     "freeze it"));
  }
  if (!tensor.is_non_overlapping_and_dense()) {
    return Refuse(name, "has gaps or overlaps in its storage: make it contiguous first");
  }
  return absl::OkStatus();
}

at::Tensor EmptyGradient(const at::Tensor& parameter) {
  return at::empty_strided(
      parameter.sizes(), parameter.strides(),
      at::TensorOptions().dtype(parameter.scalar_type()).device(parameter.device()));
}

}  // namespace

protocol::TensorInfo DescribeTensor(const std::string& name, const at::Tensor& tensor) {
  protocol::TensorInfo info;
  info.name = name;
  info.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
  if (!tensor.is_contiguous()) {
    info.strides.assign(tensor.strides().begin(), tensor.strides().end());
  }
  return info;
}

absl::StatusOr<TrainableParameters> FindTrainableParameters(const torch::nn::Module& module,
                                                            const NamedTensors& master_values) {
  const std::map<std::string, at::Tensor> values(master_values.begin(), master_values.end());
  TrainableParameters found;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& entry : module.named_parameters()) {
    const at::Tensor& tensor = entry.value();
    if (tensor.defined() && !tensor.requires_grad()) found.frozen.emplace_back(entry.key(), tensor);
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;  // Tied to an earlier one.
    if (found.tensors.empty()) found.device = tensor.device();
    absl::Status status = CheckTrainable(entry.key(), tensor, found.device);
    if (!status.ok()) return status;
    const auto value = values.find(entry.key());
    if (value != values.end() && value->second.sizes() != tensor.sizes()) {
      return Refuse(entry.key(), "has another shape than the initial value of its master");
    }
    const bool is_master = tensor.scalar_type() == at::kFloat;
    found.masters.push_back(
        is_master ? tensor
                  : MakeMaster(tensor, value == values.end() ? at::Tensor() : value->second));
    found.tensors.push_back(tensor);
    found.table.push_back(DescribeTensor(entry.key(), tensor));
  }
  if (absl::Status status = protocol::ValidateTensorTable(found.table); !status.ok()) return status;
  return found;
}

uint64_t CountTrainableElements(const torch::nn::Module& module) {
  uint64_t elements = 0;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& tensor : module.parameters()) {
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) elements += tensor.numel();
  }
  return elements;
}

bool LiesAs(const at::Tensor& tensor, const protocol::TensorInfo& info, at::ScalarType type) {
  if (tensor.layout() != at::kStrided || tensor.scalar_type() != type ||
      tensor.sizes() != at::IntArrayRef(info.shape)) {
    return false;
  }
  if (info.strides.empty()) return tensor.is_contiguous();
  return tensor.strides() == at::IntArrayRef(info.strides);
}

absl::Span<float> StorageSpan(const at::Tensor& tensor) {
  return absl::MakeSpan(tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel()));
}

GradientView StorageView(const at::Tensor& tensor, float scale) {
  const std::optional<compress::ElementType> type = ElementTypeOf(tensor.scalar_type());
  Check(type.has_value(), "parameters of other types are refused");
  return {tensor.const_data_ptr(), static_cast<size_t>(tensor.numel()), *type, scale};
}

std::string Sha256(const std::vector<at::Tensor>& tensors) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  Check(context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1,
        "SHA-256 starts");
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor here = tensor.detach().to(at::kCPU);
    const absl::Span<const float> values = StorageSpan(here);
    Check(EVP_DigestUpdate(context.get(), values.data(), values.size() * sizeof(float)) == 1,
          "SHA-256 takes bytes");
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  Check(EVP_DigestFinal_ex(context.get(), digest.data(), &size) == 1, "SHA-256 ends");
  return std::string(reinterpret_cast<const char*>(digest.data()), size);
}

absl::StatusOr<at::Tensor> LayGradient(const at::Tensor& parameter,
                                       const protocol::TensorInfo& info) {
  at::Tensor gradient = parameter.grad();
  if (!gradient.defined()) {
    gradient = EmptyGradient(parameter).zero_();
  } else if (gradient.layout() != at::kStrided) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", info.name,
        " got a sparse gradient, and only dense ones can be exchanged: make the layer's "
        "gradient dense (embeddings: sparse(false))"));
  } else if (gradient.device() != parameter.device() ||
             !LiesAs(gradient, info, parameter.scalar_type())) {
    gradient = EmptyGradient(parameter).copy_(gradient);
  }
  parameter.mutable_grad() = gradient;
  return gradient;
}

}  // namespace sluice::worker
