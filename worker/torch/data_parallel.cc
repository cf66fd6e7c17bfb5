// SPDX-License-Identifier: Apache-2.0
#include "worker/torch/data_parallel.h"

#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "worker/torch/gradient_hook.h"
#include "worker/torch/torch_status.h"

namespace sluice::worker {
namespace {

protocol::TensorTable Concatenated(const protocol::TensorTable& first,
                                   const protocol::TensorTable& second) {
  protocol::TensorTable all = first;
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

absl::Status CheckHookSlots(const TrainableParameters& parameters) {
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    const absl::Status free = CheckHookSlot(parameters.tensors[i]);
    if (free.ok()) continue;
    return absl::Status(free.code(),
                        absl::StrCat("parameter ", parameters.table[i].name, ": ", free.message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataParallel>> DataParallel::Join(
    const torch::nn::Module& module, JobClient* client, const DataParallelOptions& options) {
  if (options.accumulation_steps == 0) {
    return absl::InvalidArgumentError("accumulation_steps is 0: it must be at least 1");
  }
  const auto join = [&]() -> absl::StatusOr<std::unique_ptr<DataParallel>> {
    absl::StatusOr<TrainableParameters> parameters =
        FindTrainableParameters(module, options.master_values);
    if (!parameters.ok()) return parameters.status();
    absl::StatusOr<AveragedBuffers> buffers =
        FindAveragedBuffers(module, options.local_buffers, parameters->device);
    if (!buffers.ok()) return buffers.status();
    if (absl::Status free = CheckHookSlots(*parameters); !free.ok()) return free;
    // All ranks start with the same buffers, as with parameters. After that, buffers may differ
    // between ranks.
    std::vector<at::Tensor> tensors = parameters->masters;
    tensors.insert(tensors.end(), buffers->tensors.begin(), buffers->tensors.end());
    protocol::TensorTable table = Concatenated(parameters->table, buffers->table);
    absl::StatusOr<JoinedJob> joined = client->Join(table, Sha256(tensors));
    if (!joined.ok()) return joined.status();
    std::unique_ptr<DataParallel> made(new DataParallel(*std::move(parameters), *std::move(buffers),
                                                        std::move(table), *std::move(joined),
                                                        options));
    if (!made->joined_.parameters_agree) {
      if (absl::Status status = made->AgreeOn(tensors); !status.ok()) return status;
    }
    made->CopyMastersToModule();
    made->Publish();
    made->InstallHooks();
    return made;
  };
  return TorchStatus("while joining the job", join);
}

DataParallel::DataParallel(TrainableParameters parameters, AveragedBuffers buffers,
                           protocol::TensorTable table, JoinedJob joined,
                           const DataParallelOptions& options)
    : parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      table_(std::move(table)),
      joined_(std::move(joined.info)),
      session_(joined.session),
      options_(options),
      port_(session_, table_.size()),
      slots_(parameters_.tensors.size()) {
  if (options_.streams) changes_.emplace(parameters_.masters, options_.merge_alpha);
}

DataParallel::~DataParallel() {
  for (const at::Tensor& parameter : parameters_.tensors) RemoveGradientHook(parameter);
}

void DataParallel::InstallHooks() {
  for (uint32_t i = 0; i < parameters_.tensors.size(); ++i) {
    InstallGradientHook(parameters_.tensors[i], [this, i](const at::Tensor&) { OnGradient(i); });
  }
}

absl::Status DataParallel::AgreeOn(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> here;
  std::vector<absl::Span<float>> spans;
  for (const at::Tensor& tensor : tensors) {
    here.push_back(tensor.detach().to(at::kCPU));
    spans.push_back(StorageSpan(here.back()));
  }
  absl::Status status = session_->AgreeOnParameters(spans);
  if (!status.ok()) return status;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].is_cpu()) tensors[i].detach().copy_(here[i]);
  }
  return absl::OkStatus();
}

void DataParallel::PublishWeights(uint64_t step, bool is_last) {
  if (!session_->WantsWeights(step, is_last)) return;
  std::vector<at::Tensor> here;
  std::vector<absl::Span<const float>> spans;
  for (const at::Tensor& tensor : parameters_.masters) {
    here.push_back(tensor.detach().to(at::kCPU));
    spans.push_back(StorageSpan(here.back()));
  }
  session_->PublishWeights(step, spans, is_last);
}

void DataParallel::OnGradient(uint32_t tensor) {
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return;
  Slot& slot = slots_[tensor];
  ++slot.passes;
  const uint32_t passes = slot.passes + passes_of_replicas_;
  if (passes < options_.accumulation_steps) return;
  const bool stays = options_.atomic_step || options_.sends_weights;
  if (stays && passes == options_.accumulation_steps) return;
  if (slot.submitted || stays) {
    failure_ = absl::FailedPreconditionError(
        absl::StrCat("backward reached parameter ", parameters_.table[tensor].name, " ", passes,
                     " times before Synchronize, but accumulation_steps is ",
                     options_.accumulation_steps, ": call Synchronize after each ",
                     options_.accumulation_steps, " backward passes, or raise accumulation_steps"));
    return;
  }
  // The thread safety analysis does not follow `lock` into a lambda.
  const auto submit = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return SubmitLocked(tensor, passes); };
  failure_ = TorchStatus("while submitting a gradient", submit);
}

absl::Status DataParallel::LaySlotLocked(uint32_t tensor) {
  const at::NoGradGuard no_grad;
  Slot& slot = slots_[tensor];
  absl::StatusOr<at::Tensor> gradient =
      LayGradient(parameters_.tensors[tensor], parameters_.table[tensor]);
  if (!gradient.ok()) return gradient.status();
  slot.gradient = *std::move(gradient);
  // If the parameter was not used in this step, its gradient is left over from an earlier step.
  if (slot.passes == 0) slot.gradient.zero_();
  if (options_.replicas != nullptr && !slot.with_replicas) {
    options_.replicas->AddGradients(tensor, slot.gradient);
    slot.with_replicas = true;
  }
  return absl::OkStatus();
}

absl::Status DataParallel::SubmitLocked(uint32_t tensor, uint32_t passes) {
  if (absl::Status status = LaySlotLocked(tensor); !status.ok()) return status;
  Slot& slot = slots_[tensor];
  slot.submitted = true;
  const auto scale = static_cast<float>(double{gradient_scale_} / passes);
  return port_.Submit(tensor, slot.gradient, scale);
}

absl::StatusOr<uint32_t> DataParallel::PassesLocked() const {
  if (!failure_.ok()) return failure_;
  uint32_t passes = 0;
  for (const Slot& slot : slots_) passes = std::max(passes, slot.passes);
  if (passes > 0) return passes + passes_of_replicas_;
  return absl::FailedPreconditionError(
      "Synchronize was called, but no backward pass reached a parameter in this step: call "
      "backward first, or Skip for a step without data");
}

absl::Status DataParallel::FindOverflow() {
  MutexLock lock(&mutex_);
  overflowed_.clear();
  if (!options_.atomic_step) return absl::OkStatus();
  if (absl::Status status = PassesLocked().status(); !status.ok()) return status;
  std::vector<at::Tensor> gradients(slots_.size());
  for (uint32_t i = static_cast<uint32_t>(slots_.size()); i-- > 0;) {
    if (absl::Status status = LaySlotLocked(i); !status.ok()) return status;
    gradients[i] = slots_[i].gradient;
  }
  NoteOverflow(gradients);
  return absl::OkStatus();
}

void DataParallel::NoteOverflow(const std::vector<at::Tensor>& gradients) {
  const std::optional<size_t> found = FindNonFinite(gradients);
  if (found.has_value()) overflowed_ = parameters_.table[*found].name;
}

absl::Status DataParallel::SubmitRest() {
  MutexLock lock(&mutex_);
  const absl::StatusOr<uint32_t> passes = PassesLocked();
  if (!passes.ok()) return passes.status();
  // Last tensor first, as in backward.
  for (uint32_t i = static_cast<uint32_t>(slots_.size()); i-- > 0;) {
    if (slots_[i].submitted) continue;
    if (absl::Status status = SubmitLocked(i, *passes); !status.ok()) {
      failure_ = status;
      return status;
    }
  }
  return absl::OkStatus();
}

// Call after all gradients of the step have arrived: after that, no pass changes the buffers.
absl::Status DataParallel::SubmitBuffers() {
  if (!session_->BuffersDue()) return absl::OkStatus();
  for (size_t i = buffers_.tensors.size(); i-- > 0;) {
    if (buffers_.tensors[i].device() != parameters_.device ||
        !LiesAs(buffers_.tensors[i], buffers_.table[i])) {
      return absl::FailedPreconditionError(
          absl::StrCat("buffer ", ToString(buffers_.table[i]),
                       " has changed its shape, type or device since the start: change buffers in "
                       "place, or name it in DataParallelOptions::local_buffers"));
    }
    const at::Tensor& values =
        changes_.has_value() ? changes_->Copy(buffers_.tensors[i]) : buffers_.tensors[i];
    absl::Status status = port_.SubmitFromHost(IndexOfBuffer(i), values);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> DataParallel::Synchronize() {
  return TorchStatus("while synchronizing gradients", [&]() -> absl::StatusOr<StepResult> {
    absl::Status status = options_.sends_weights ? SubmitMoved() : SubmitGradients();
    if (!status.ok()) return status;
    return WaitAndApply();
  });
}

absl::Status DataParallel::CheckFrozen() const {
  for (const auto& [name, tensor] : parameters_.frozen) {
    if (!tensor.requires_grad() || !tensor.grad().defined()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "parameter ", name,
        " has a gradient, but it was frozen when the job began, so no other worker gets it: "
        "unfreeze parameters before DataParallel::Join, and restart the job to train others"));
  }
  return absl::OkStatus();
}

absl::Status DataParallel::SubmitGradients() {
  if (absl::Status status = CheckFrozen(); !status.ok()) return status;
  if (absl::Status status = FindOverflow(); !status.ok()) return status;
  if (!overflowed_.empty()) return session_->Skip();
  if (absl::Status status = SubmitRest(); !status.ok()) return status;
  return SubmitBuffers();
}

// Overwrites the parameters with their change; the update restores them.
absl::Status DataParallel::SubmitMoved() {
  const at::NoGradGuard no_grad;
  for (uint32_t i = static_cast<uint32_t>(published_.size()); i-- > 0;) {
    parameters_.masters[i].neg_().add_(published_[i]);
    absl::Status status = port_.Submit(i, parameters_.masters[i], 1);
    if (!status.ok()) return status;
  }
  return SubmitBuffers();
}

absl::Status DataParallel::BeginExchange(bool skip) {
  return TorchStatus("while sending changes of parameters", [&] {
    changes_->Begin(session_->PartsDue());
    if (skip) return session_->Skip();
    absl::Status status = changes_->Submit(published_, &port_);
    return status.ok() ? SubmitBuffers() : status;
  });
}

absl::Status DataParallel::ReadGradients() {
  return TorchStatus("while taking gradients", [&] { return ReadOwnGradients(); });
}

absl::Status DataParallel::ReadOwnGradients() {
  if (absl::Status status = CheckFrozen(); !status.ok()) return status;
  MutexLock lock(&mutex_);
  overflowed_.clear();
  const absl::StatusOr<uint32_t> passes = PassesLocked();
  if (!passes.ok()) return passes.status();
  const auto scale = static_cast<float>(double{gradient_scale_} / *passes);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients(slots_.size());
  for (uint32_t i = static_cast<uint32_t>(slots_.size()); i-- > 0;) {
    if (absl::Status status = LaySlotLocked(i); !status.ok()) return status;
    at::Tensor gradient = slots_[i].gradient;
    if (HasMaster(i)) {
      absl::StatusOr<at::Tensor> own = LayGradient(parameters_.masters[i], parameters_.table[i]);
      if (!own.ok()) return own.status();
      own->copy_(gradient);
      gradient.zero_();
      gradient = *std::move(own);
    }
    if (scale != 1) gradient.mul_(scale);
    gradients[i] = gradient;
  }
  BeginStepLocked();
  NoteOverflow(gradients);
  return absl::OkStatus();
}

void DataParallel::BeginStepLocked() {
  for (Slot& slot : slots_) slot = Slot{};
  passes_of_replicas_ = 0;
}

void DataParallel::CountPassesOfReplicas(uint32_t passes) {
  MutexLock lock(&mutex_);
  passes_of_replicas_ = passes;
}

void DataParallel::ScaleGradients(float factor) {
  MutexLock lock(&mutex_);
  gradient_scale_ = factor;
}

void DataParallel::CopyMastersToModule() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.tensors.size(); ++i) {
    if (HasMaster(i)) parameters_.tensors[i].copy_(parameters_.masters[i]);
  }
}

void DataParallel::ParametersRestored() {
  CopyMastersToModule();
  if (!options_.streams) Publish();
}

void DataParallel::AdoptPublished() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < published_.size(); ++i) {
    parameters_.masters[i].detach().copy_(published_[i]);
  }
  CopyMastersToModule();
}

// Takes the parameters as those that all ranks share.
void DataParallel::Publish() {
  if (!options_.sends_weights) return;
  published_.clear();
  for (const at::Tensor& master : parameters_.masters) {
    published_.push_back(master.detach().clone());
  }
}

void DataParallel::SwapPublished() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < published_.size(); ++i) {
    // Copy in place, because hooks and the optimizer hold references to the parameters.
    const at::Tensor here = parameters_.masters[i].detach();
    const at::Tensor before = here.clone();
    here.copy_(published_[i]);
    published_[i].copy_(before);
  }
}

NamedTensors DataParallel::StateDict(const torch::nn::Module& module) const {
  std::unordered_map<const c10::TensorImpl*, at::Tensor> masters;
  for (size_t i = 0; i < parameters_.tensors.size(); ++i) {
    masters[parameters_.tensors[i].unsafeGetTensorImpl()] = parameters_.masters[i];
  }
  NamedTensors tensors = TensorsOf(module);
  for (auto& [name, tensor] : tensors) {
    const auto master = masters.find(tensor.unsafeGetTensorImpl());
    if (master != masters.end()) tensor = master->second;
  }
  return tensors;
}

absl::StatusOr<StepResult> DataParallel::Skip() {
  return TorchStatus("while skipping a step", [&]() -> absl::StatusOr<StepResult> {
    // With sends_weights, overflowed_ keeps the result of ReadGradients.
    if (!options_.sends_weights) overflowed_.clear();
    {
      MutexLock lock(&mutex_);
      if (!failure_.ok()) return failure_;
      for (const Slot& slot : slots_) {
        if (slot.passes > 0) {
          return absl::FailedPreconditionError(
              "Skip was called after a backward pass of the same step: call Synchronize instead, "
              "which averages the passes that ran");
        }
      }
    }
    if (absl::Status status = session_->Skip(); !status.ok()) return status;
    return WaitAndApply();
  });
}

}  // namespace sluice::worker
