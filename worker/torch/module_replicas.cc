// SPDX-License-Identifier: Apache-2.0
#include "worker/torch/module_replicas.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::worker {

absl::StatusOr<std::unique_ptr<ModuleReplicas>> ModuleReplicas::Create(
    const torch::nn::Module& module, std::vector<std::shared_ptr<torch::nn::Module>> copies) {
  std::unique_ptr<ModuleReplicas> made(new ModuleReplicas());
  made->copies_ = std::move(copies);
  const absl::StatusOr<TrainableParameters> trained = FindTrainableParameters(module);
  if (!trained.ok()) return trained.status();
  const auto add = [&](const std::string& name, const at::Tensor& own, bool is_buffer,
                       std::vector<Alike>* to) {
    absl::StatusOr<Alike> alike = made->FindAlike(name, own, is_buffer);
    if (!alike.ok()) return alike.status();
    to->push_back(*std::move(alike));
    return absl::OkStatus();
  };
  absl::Status status;
  for (size_t i = 0; i < trained->tensors.size() && status.ok(); ++i) {
    status = add(trained->table[i].name, trained->tensors[i], false, &made->trained_);
  }
  for (const auto& parameter : module.named_parameters()) {
    if (!status.ok()) break;
    if (!parameter.value().requires_grad()) {
      status = add(parameter.key(), parameter.value(), false, &made->frozen_);
    }
  }
  for (const auto& buffer : module.named_buffers()) {
    if (status.ok()) status = add(buffer.key(), buffer.value(), true, &made->buffers_);
  }
  if (!status.ok()) return status;
  return made;
}

absl::StatusOr<ModuleReplicas::Alike> ModuleReplicas::FindAlike(const std::string& name,
                                                                const at::Tensor& own,
                                                                bool is_buffer) {
  Alike alike;
  alike.own = own;
  for (const auto& copy : copies_) {
    const auto all = is_buffer ? copy->named_buffers() : copy->named_parameters();
    const at::Tensor* const found = all.find(name);
    if (found == nullptr || found->sizes() != own.sizes() ||
        found->scalar_type() != own.scalar_type()) {
      return absl::InvalidArgumentError(
          absl::StrCat(is_buffer ? "buffer " : "parameter ", name, " is ",
                       found == nullptr ? "missing" : "of another shape or type",
                       " in a copy of the model: build all copies in the same way"));
    }
    alike.copies.push_back(*found);
  }
  return alike;
}

void ModuleReplicas::Load() {
  const at::NoGradGuard no_grad;
  for (const std::vector<Alike>* const tensors : {&trained_, &frozen_, &buffers_}) {
    for (const Alike& alike : *tensors) {
      for (const at::Tensor& copy : alike.copies) {
        copy.detach().copy_(alike.own.detach(), /*non_blocking=*/true);
      }
    }
  }
}

void ModuleReplicas::AddGradients(size_t parameter, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& copy : trained_[parameter].copies) {
    const at::Tensor found = copy.grad();
    if (!found.defined()) continue;
    gradient.add_(found.to(gradient.device(), /*non_blocking=*/true));
    found.zero_();
  }
}

void ModuleReplicas::AverageBuffers(size_t ran) {
  const at::NoGradGuard no_grad;
  for (const Alike& buffer : buffers_) {
    if (ran == 0 || !buffer.own.is_floating_point()) continue;
    const at::Tensor own = buffer.own.detach();
    for (size_t i = 0; i < ran; ++i) {
      own.add_(buffer.copies[i].detach().to(own.device(), /*non_blocking=*/true));
    }
    own.div_(static_cast<double>(ran + 1));
  }
}

}  // namespace sluice::worker
