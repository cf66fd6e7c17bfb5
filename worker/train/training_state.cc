// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/serialize.h>
#include <torch/torch.h>

#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::worker {
namespace {

constexpr int64_t kVersion = 4;

// Numbers of integers and floating-point values in a saved cursor. The members follow the integers.
constexpr size_t kIntegers = 15;
constexpr int64_t kMembersMax = 1 << 16;
constexpr size_t kFractions = 10;

at::Tensor BytesTensor(absl::string_view bytes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::string SaveOptimizer(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::string bytes;
  archive.save_to([&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  return bytes;
}

at::Device DeviceOf(const TrainedState& trained) {
  return trained.model.empty() ? at::Device(at::kCPU) : trained.model.front().second.device();
}

at::Tensor RandomState(at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void SetRandomState(const at::Tensor& state, at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

// Returns the devices whose random number generators are saved, by key.
std::vector<std::pair<std::string, at::Device>> RandomNumbers(const TrainedState& trained) {
  std::vector<std::pair<std::string, at::Device>> all = {{"random", at::kCPU}};
  const at::Device device = DeviceOf(trained);
  if (device != at::kCPU) all.emplace_back("random_of_device", device);
  for (size_t i = 0; i < trained.copies_on.size(); ++i) {
    all.emplace_back(absl::StrCat("random_of_device_", i + 1), trained.copies_on[i]);
  }
  return all;
}

std::string ShapeAndType(const at::Tensor& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.sizes().vec(), ", "), "] of ",
                      c10::toString(tensor.scalar_type()));
}

absl::Status RestoreModel(const c10::impl::GenericDict& saved, const NamedTensors& tensors) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    const auto found = saved.find(name);
    if (found == saved.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the saved training state has no ", name, ", which the model has"));
    }
    const at::Tensor value = found->value().toTensor();
    if (value.sizes() != tensor.sizes() || value.scalar_type() != tensor.scalar_type()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is ", ShapeAndType(value),
                                                     " in the saved training state, and ",
                                                     ShapeAndType(tensor), " in the model"));
    }
    // Copy in place: hooks, spans and the optimizer hold references to the tensor and its storage.
    tensor.detach().copy_(value);
  }
  if (saved.size() == tensors.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the saved training state has ", saved.size(),
                                                 " parameters and buffers, the model ",
                                                 tensors.size()));
}

at::Tensor Integers(const TrainingCursor& cursor) {
  std::vector<int64_t> values = {static_cast<int64_t>(cursor.step),
                                 static_cast<int64_t>(cursor.epoch),
                                 static_cast<int64_t>(cursor.samples),
                                 static_cast<int64_t>(cursor.skipped),
                                 int64_t{cursor.skipped_in_a_row},
                                 static_cast<int64_t>(cursor.epoch_loss_count),
                                 cursor.evaluation.has_value() ? 1 : 0,
                                 static_cast<int64_t>(cursor.traffic.bytes_up),
                                 static_cast<int64_t>(cursor.traffic.bytes_down),
                                 static_cast<int64_t>(cursor.traffic.steps),
                                 int64_t{cursor.ranks},
                                 static_cast<int64_t>(cursor.deal_step),
                                 static_cast<int64_t>(cursor.deal_offset),
                                 cursor.best.has_value() ? 1 : 0,
                                 static_cast<int64_t>(cursor.best.value_or(BestTest{}).step)};
  values.insert(values.end(), cursor.members.begin(), cursor.members.end());
  return at::tensor(values, at::kLong);
}

at::Tensor Fractions(const TrainingCursor& cursor) {
  const Evaluation evaluation = cursor.evaluation.value_or(Evaluation{});
  const TrafficCounters& traffic = cursor.traffic;
  const BestTest best = cursor.best.value_or(BestTest{});
  return at::tensor(
      std::vector<double>{cursor.last_loss, cursor.epoch_loss_sum, evaluation.accuracy,
                          evaluation.loss, traffic.encode_seconds, traffic.decode_seconds,
                          traffic.exposed_seconds, best.accuracy, best.loss, cursor.wall_seconds},
      at::kDouble);
}

absl::Status RestoreCursor(const at::Tensor& integers, const at::Tensor& fractions,
                           TrainingCursor* cursor) {
  const int64_t members = integers.numel() - int64_t{kIntegers};
  if (members < 0 || members > kMembersMax || fractions.numel() != int64_t{kFractions} ||
      integers.scalar_type() != at::kLong || fractions.scalar_type() != at::kDouble) {
    return absl::InvalidArgumentError("the saved training state's counters are malformed");
  }
  const auto* whole = integers.const_data_ptr<int64_t>();
  const auto* part = fractions.const_data_ptr<double>();
  cursor->step = static_cast<uint64_t>(whole[0]);
  cursor->epoch = static_cast<uint64_t>(whole[1]);
  cursor->samples = static_cast<uint64_t>(whole[2]);
  cursor->skipped = static_cast<uint64_t>(whole[3]);
  cursor->skipped_in_a_row = static_cast<uint32_t>(whole[4]);
  cursor->epoch_loss_count = static_cast<uint64_t>(whole[5]);
  cursor->last_loss = part[0];
  cursor->epoch_loss_sum = part[1];
  cursor->traffic = {.bytes_up = static_cast<uint64_t>(whole[7]),
                     .bytes_down = static_cast<uint64_t>(whole[8]),
                     .steps = static_cast<uint64_t>(whole[9]),
                     .encode_seconds = part[4],
                     .decode_seconds = part[5],
                     .exposed_seconds = part[6]};
  cursor->ranks = static_cast<uint32_t>(whole[10]);
  cursor->deal_step = static_cast<uint64_t>(whole[11]);
  cursor->deal_offset = static_cast<uint64_t>(whole[12]);
  cursor->members.clear();
  for (int64_t i = 0; i < members; ++i) {
    cursor->members.push_back(static_cast<uint32_t>(whole[int64_t{kIntegers} + i]));
  }
  cursor->evaluation.reset();
  if (whole[6] != 0) {
    cursor->evaluation.emplace();
    cursor->evaluation->accuracy = part[2];
    cursor->evaluation->loss = part[3];
  }
  cursor->best.reset();
  if (whole[13] != 0) {
    cursor->best =
        BestTest{.step = static_cast<uint64_t>(whole[14]), .accuracy = part[7], .loss = part[8]};
  }
  cursor->wall_seconds = part[9];
  return absl::OkStatus();
}

absl::Status RestoreOptimizer(const c10::impl::GenericDict& state, at::Device device,
                              torch::optim::Optimizer* optimizer) {
  if (optimizer == nullptr) return absl::OkStatus();
  if (!state.contains("optimizer")) {
    return absl::InvalidArgumentError(
        "the saved training state has no optimizer, which ran on the shards: continue with "
        "optimizer.location shards");
  }
  const at::Tensor saved = state.at("optimizer").toTensor().contiguous();
  torch::serialize::InputArchive archive;
  archive.load_from(static_cast<const char*>(saved.const_data_ptr()), saved.nbytes(), device);
  optimizer->load(archive);
  return absl::OkStatus();
}

absl::Status RestoreLossScale(const c10::impl::GenericDict& saved, LossScale* scale) {
  if (scale == nullptr || !saved.contains("loss_scale")) return absl::OkStatus();
  const double value = saved.at("loss_scale").toDouble();
  const int64_t good_steps = saved.at("loss_scale_good_steps").toInt();
  if (scale->Restore(value, good_steps)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the saved training state has a loss scale of ",
                                                 value, " after ", good_steps,
                                                 " good steps, which no run can reach"));
}

absl::Status RestoreEma(const c10::impl::GenericDict& saved, Ema* ema) {
  if (ema == nullptr) return absl::OkStatus();
  if (!saved.contains("averages")) {
    ema->Reset();
    return absl::OkStatus();
  }
  const c10::List<at::Tensor> averages = saved.at("averages").toTensorList();
  const std::vector<at::Tensor>& here = ema->averages();
  bool fits = averages.size() == here.size();
  for (size_t i = 0; fits && i < here.size(); ++i) {
    const at::Tensor& average = averages.get(i);
    fits = average.sizes() == here[i].sizes() && average.scalar_type() == at::kFloat;
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("the saved training state averages ", averages.size(),
                     " parameters, which do not match this model's ", here.size()));
  }
  ema->Restore(averages.vec(), static_cast<uint64_t>(saved.at("average_updates").toInt()));
  return absl::OkStatus();
}

absl::Status RestorePublished(const c10::impl::GenericDict& saved,
                              const std::vector<at::Tensor>& published, TrainingCursor* cursor) {
  if (published.empty()) return absl::OkStatus();
  const c10::List<at::Tensor> values =
      saved.contains("published") ? saved.at("published").toTensorList() : c10::List<at::Tensor>();
  if (values.size() != published.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the saved training state has ", values.size(), " shared parameters, the model ",
        published.size(), ": continue with the job's settings for fragments"));
  }
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < published.size(); ++i) {
    const at::Tensor& value = values.get(i);
    if (value.sizes() != published[i].sizes() || value.scalar_type() != at::kFloat) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shared parameter ", i, " is ", ShapeAndType(value), " in the saved training state, and ",
          ShapeAndType(published[i]), " in the model"));
    }
    published[i].copy_(value);
  }
  cursor->rank = static_cast<uint32_t>(saved.at("rank").toInt());
  cursor->idle_exchanges = static_cast<uint64_t>(saved.at("idle_exchanges").toInt());
  return absl::OkStatus();
}

}  // namespace

std::string SaveTrainingState(const TrainedState& trained, const TrainingCursor& cursor) {
  c10::impl::GenericDict model(c10::StringType::get(), c10::TensorType::get());
  // Saved as CPU tensors, so that a run can continue on another device.
  for (const auto& [name, tensor] : trained.model) {
    model.insert(name, tensor.detach().to(at::kCPU));
  }
  c10::impl::GenericDict state(c10::StringType::get(), c10::AnyType::get());
  state.insert("version", kVersion);
  state.insert("model", model);
  if (trained.optimizer != nullptr) {
    state.insert("optimizer", BytesTensor(SaveOptimizer(*trained.optimizer)));
  }
  for (const auto& [key, device] : RandomNumbers(trained)) {
    state.insert(key, RandomState(device));
  }
  state.insert("integers", Integers(cursor));
  state.insert("fractions", Fractions(cursor));
  if (trained.loss_scale != nullptr) {
    state.insert("loss_scale", trained.loss_scale->value());
    state.insert("loss_scale_good_steps", int64_t{trained.loss_scale->good_steps()});
  }
  if (trained.ema != nullptr) {
    c10::List<at::Tensor> averages;
    for (const at::Tensor& average : trained.ema->averages()) {
      averages.push_back(average.to(at::kCPU));
    }
    state.insert("averages", averages);
    state.insert("average_updates", static_cast<int64_t>(trained.ema->updates()));
  }
  if (!trained.published.empty()) {
    c10::List<at::Tensor> published;
    for (const at::Tensor& tensor : trained.published) {
      published.push_back(tensor.detach().to(at::kCPU));
    }
    state.insert("published", published);
    state.insert("rank", int64_t{cursor.rank});
    state.insert("idle_exchanges", static_cast<int64_t>(cursor.idle_exchanges));
  }
  const std::vector<char> bytes = torch::pickle_save(state);
  return {bytes.data(), bytes.size()};
}

absl::Status RestoreTrainingState(absl::string_view bytes, const TrainedState& trained,
                                  TrainingCursor* cursor) {
  const c10::impl::GenericDict state =
      torch::pickle_load(std::vector<char>(bytes.begin(), bytes.end())).toGenericDict();
  const int64_t version = state.at("version").toInt();
  if (version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("the saved training state is of version ", version, ", this program reads ",
                     kVersion, ": continue with the version of Sluice that saved it"));
  }
  absl::Status status = RestoreModel(state.at("model").toGenericDict(), trained.model);
  if (status.ok()) {
    status =
        RestoreCursor(state.at("integers").toTensor(), state.at("fractions").toTensor(), cursor);
  }
  if (status.ok()) status = RestoreLossScale(state, trained.loss_scale);
  if (status.ok()) status = RestoreEma(state, trained.ema);
  if (status.ok()) status = RestorePublished(state, trained.published, cursor);
  if (status.ok()) status = RestoreOptimizer(state, DeviceOf(trained), trained.optimizer);
  if (!status.ok()) return status;
  // A state from another kind of device, or from fewer devices, lacks the generators of some
  // devices. Those generators keep their initial state.
  for (const auto& [key, device] : RandomNumbers(trained)) {
    if (state.contains(key)) SetRandomState(state.at(key).toTensor(), device);
  }
  return absl::OkStatus();
}

}  // namespace sluice::worker
