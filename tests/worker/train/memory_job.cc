// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/train/memory_job.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::worker {

std::unique_ptr<MemoryJob::RankSession> MemoryJob::MakeSession(uint32_t rank) {
  return std::make_unique<RankSession>(this, rank);
}

void MemoryJob::Barrier() {
  MutexLock lock(&mutex_);
  const uint64_t turn = turn_;
  if (++arrived_ == ranks_) {
    arrived_ = 0;
    ++turn_;
    changed_.SignalAll();
    return;
  }
  while (turn_ == turn) changed_.Wait(&mutex_);
}

absl::StatusOr<JoinedJob> MemoryJob::RankSession::Join(const protocol::TensorTable& table,
                                                       absl::string_view parameters_sha256) {
  if (parameters_sha256.size() != 32) return absl::InvalidArgumentError("a hash of another size");
  table_ = table;
  views_.resize(table.size());
  has_.assign(table.size(), false);
  means_.resize(table.size());
  {
    MutexLock lock(&job_->mutex_);
    job_->hashes_.emplace_back(parameters_sha256);
  }
  job_->Barrier();
  MutexLock lock(&job_->mutex_);
  const bool agree = std::all_of(job_->hashes_.begin(), job_->hashes_.end(),
                                 [&](const std::string& hash) { return hash == job_->hashes_[0]; });
  return JoinedJob{.info = {.rank = rank_,
                            .world_size = job_->ranks_,
                            .first_step = step_ + 1,
                            .parameters_agree = agree && job_->agreement_failure_.ok(),
                            .restored_step = step_,
                            .restored = restored_,
                            .steps_behind = late_step_ == step_ ? steps_behind_ : 0},
                   .session = this};
}

absl::Status MemoryJob::RankSession::AgreeOnParameters(
    absl::Span<const absl::Span<float>> parameters) {
  if (!job_->agreement_failure_.ok()) return job_->agreement_failure_;
  if (rank_ == 0) {
    MutexLock lock(&job_->mutex_);
    for (const absl::Span<float> span : parameters) {
      job_->first_parameters_.emplace_back(span.begin(), span.end());
    }
  }
  job_->Barrier();
  MutexLock lock(&job_->mutex_);
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::copy(job_->first_parameters_[i].begin(), job_->first_parameters_[i].end(),
              parameters[i].begin());
  }
  return absl::OkStatus();
}

bool MemoryJob::RankSession::BuffersDue() const {
  const uint64_t step = step_ + 1;
  return protocol::TrainedTensors(table_) < table_.size() &&
         (step % buffer_sync_interval_ == 0 ||
          (checkpoint_every_ > 0 && step % checkpoint_every_ == 0));
}

bool MemoryJob::RankSession::IsDue(uint32_t tensor) const {
  if (tensor >= protocol::TrainedTensors(table_)) return BuffersDue();
  return protocol::IsFragmentDue(job_->fragments_, tensor % job_->fragments_, step_ + 1);
}

std::vector<protocol::TensorPart> MemoryJob::RankSession::PartsDue() const {
  std::vector<protocol::TensorPart> parts;
  for (uint32_t tensor = 0; tensor < protocol::TrainedTensors(table_); ++tensor) {
    if (IsDue(tensor)) parts.push_back({.tensor = tensor, .count = table_[tensor].elements()});
  }
  return parts;
}

absl::Status MemoryJob::RankSession::Submit(uint32_t tensor, const GradientView& gradient) {
  if (!submit_failure_.ok()) return submit_failure_;
  if (has_[tensor] || gradient.size != table_[tensor].elements()) {
    return absl::InternalError(absl::StrCat("tensor ", tensor, " submitted twice or in part"));
  }
  if (!IsDue(tensor)) return absl::InternalError(absl::StrCat("tensor ", tensor, " is not due"));
  if (gradient.on_gpu && (!accepts_gpu_views_ || gradient.ready == nullptr)) {
    return absl::InternalError(absl::StrCat("tensor ", tensor, " lies on a GPU"));
  }
  has_[tensor] = true;
  views_[tensor] = gradient;
  gpu_views_ += gradient.on_gpu ? 1 : 0;
  views_[tensor].on_gpu = false;
  submitted_.push_back(tensor);
  return absl::OkStatus();
}

absl::Status MemoryJob::RankSession::ApplyOnGpu(absl::Span<const GpuTensor> tensors, void* ready) {
  if (!accepts_gpu_views_ || ready == nullptr) return absl::InternalError("there is no GPU");
  for (const GpuTensor& tensor : tensors) {
    const absl::Span<float> values(tensor.values, tensor.size);
    absl::Status status =
        rate_ == 0 ? Apply(tensor.tensor, values) : ApplyUpdate(tensor.tensor, values);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status MemoryJob::RankSession::Skip() {
  ++skips_;
  return absl::OkStatus();
}

uint32_t MemoryJob::RankSession::TakeMeans() {
  MutexLock lock(&job_->mutex_);
  uint32_t n = 0;
  for (const Gradients& one : job_->contributions_) n += one.empty() ? 0 : 1;
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) {
    if (tensor >= protocol::TrainedTensors(table_) && !IsDue(tensor)) continue;
    std::vector<float>& mean = means_[tensor];
    mean.assign(table_[tensor].elements(), 0.0f);
    for (const Gradients& one : job_->contributions_) {
      if (one.empty() || !IsDue(tensor)) continue;
      const std::vector<float>& values = one.at(tensor);
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += values[i];
    }
    for (float& value : mean) value /= static_cast<float>(std::max(n, 1u));
  }
  return n;
}

absl::StatusOr<StepResult> MemoryJob::RankSession::Exchange() {
  const uint32_t trained = protocol::TrainedTensors(table_);
  const bool due = BuffersDue();
  std::vector<uint32_t> taken;
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) {
    if (IsDue(tensor)) taken.push_back(tensor);
  }
  if (!submitted_.empty() && submitted_.size() != taken.size()) {
    return absl::InternalError("Wait with a part of the tensors submitted");
  }
  {
    MutexLock lock(&job_->mutex_);
    Gradients& mine = job_->contributions_[rank_];
    mine.clear();
    for (const uint32_t tensor : submitted_) {
      GradientReader reader;
      const absl::Span<const float> values = reader.Read(views_[tensor]);
      mine[tensor].assign(values.begin(), values.end());
    }
  }
  job_->Barrier();
  const uint32_t n = TakeMeans();
  job_->Barrier();  // No rank may overwrite contributions that another rank still reads.
  submitted_.clear();
  has_.assign(table_.size(), false);
  StepResult result;
  result.step = ++step_;
  result.n_min = result.n_max = n;
  result.bundles = 1;
  if (const auto left_out = left_out_.find(step_); left_out != left_out_.end()) {
    result.n_min = 0;
    result.without_mean = left_out->second;
    for (const uint32_t tensor : left_out->second) {
      std::fill(means_[tensor].begin(), means_[tensor].end(), 0.0f);
    }
  }
  for (uint32_t tensor = 0; n == 0 && tensor < trained; ++tensor) {
    result.without_mean.push_back(tensor);
  }
  result.buffers_averaged = due && n > 0;
  if (!result.buffers_averaged) {
    for (uint32_t tensor = trained; tensor < table_.size(); ++tensor) means_[tensor].clear();
  }
  result.checkpoint_due = checkpoint_every_ > 0 && step_ % checkpoint_every_ == 0;
  for (const auto& [since, members] : members_since_) {
    if (step_ >= since) result.members = members;
  }
  if (const auto after = plans_.upper_bound(step_); after != plans_.begin()) {
    result.plan = std::prev(after)->second;
  }
  if (step_ == late_step_) result.steps_behind = steps_behind_;
  if (!non_finite_tensor_.empty()) {
    result.bundles_skipped_here = 1;
    result.first_skipped_tensor = non_finite_tensor_;
  }
  return result;
}

absl::StatusOr<std::vector<ReadyTensor>> MemoryJob::RankSession::WaitForTensors(
    absl::Duration /*limit*/) {
  std::vector<ReadyTensor> ready;
  if (exchanged_.has_value()) return ready;
  const size_t submitted = submitted_.size();
  absl::StatusOr<StepResult> result = Exchange();
  if (!result.ok()) return result.status();
  exchanged_ = *std::move(result);
  for (size_t tensor = submitted; tensor-- > 0;) {
    const auto number = static_cast<uint32_t>(tensor);
    ready.push_back({number, !std::ranges::count(exchanged_->without_mean, number)});
  }
  return ready;
}

absl::StatusOr<StepResult> MemoryJob::RankSession::Wait() {
  if (!exchanged_.has_value()) return Exchange();
  return *std::exchange(exchanged_, std::nullopt);
}

absl::Status MemoryJob::RankSession::Apply(uint32_t tensor, absl::Span<float> mean) {
  if (tensor >= protocol::TrainedTensors(table_) && means_[tensor].empty()) return absl::OkStatus();
  if (mean.size() != means_[tensor].size()) return absl::InternalError("a span of another size");
  std::copy(means_[tensor].begin(), means_[tensor].end(), mean.begin());
  return absl::OkStatus();
}

absl::Status MemoryJob::RankSession::ApplyScaled(uint32_t tensor, float scale,
                                                 absl::Span<float> values) {
  if (values.size() != means_[tensor].size()) return absl::InternalError("a span of another size");
  for (size_t i = 0; i < values.size(); ++i) values[i] += scale * means_[tensor][i];
  return absl::OkStatus();
}

}  // namespace sluice::worker
