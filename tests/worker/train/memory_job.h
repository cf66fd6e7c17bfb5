// SPDX-License-Identifier: Apache-2.0
// MemoryJob: a job whose ranks are threads of one process. It implements the Session contract
// without a network or compression.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "worker/core/job_client.h"

namespace sluice::worker {

// Must outlive its sessions. Sums contributions in rank order, as a shard does.
class MemoryJob {
 public:
  // Tensor t belongs to fragment t mod `fragments`.
  explicit MemoryJob(uint32_t ranks, uint32_t fragments = 1)
      : ranks_(ranks), fragments_(fragments), contributions_(ranks) {}

  class RankSession;
  std::unique_ptr<RankSession> MakeSession(uint32_t rank);
  // Pretends that the ranks' parameters differ, and fails to agree on them. Must precede Join.
  void FailAgreement(absl::Status status) { agreement_failure_ = std::move(status); }

 private:
  // By tensor; empty if the rank skipped.
  using Gradients = std::map<uint32_t, std::vector<float>>;

  // Waits until every rank has called Barrier as often as this rank.
  void Barrier();

  const uint32_t ranks_;
  const uint32_t fragments_;
  absl::Status agreement_failure_;
  Mutex mutex_;
  CondVar changed_;
  uint32_t arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t turn_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Gradients> contributions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> hashes_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::vector<float>> first_parameters_ ABSL_GUARDED_BY(mutex_);
};

// One rank of the job: its client, and the session that Join returns.
class MemoryJob::RankSession final : public JobClient, public Session {
 public:
  RankSession(MemoryJob* job, uint32_t rank) : job_(job), rank_(rank) {}

  absl::StatusOr<JoinedJob> Join(const protocol::TensorTable& table,
                                 absl::string_view parameters_sha256) override;
  std::optional<SessionFigures> figures() const override { return std::nullopt; }
  absl::Status AgreeOnParameters(absl::Span<const absl::Span<float>> parameters) override;
  bool BuffersDue() const override;
  std::vector<protocol::TensorPart> PartsDue() const override;
  bool AcceptsGpuViews() const override { return accepts_gpu_views_; }
  absl::Status ApplyOnGpu(absl::Span<const GpuTensor> tensors, void* ready) override;
  absl::Status Submit(uint32_t tensor, const GradientView& gradient) override;
  absl::Status Skip() override;
  // Returns all submitted tensors, the last first, once in a step.
  absl::StatusOr<std::vector<ReadyTensor>> WaitForTensors(absl::Duration limit) override;
  absl::StatusOr<StepResult> Wait() override;
  absl::Status Apply(uint32_t tensor, absl::Span<float> mean) override;
  absl::Status ApplyScaled(uint32_t tensor, float scale, absl::Span<float> values) override;
  // Does plain gradient descent, as a shard with `sgd` does.
  absl::Status ApplyUpdate(uint32_t tensor, absl::Span<float> parameters) override {
    return ApplyScaled(tensor, -rate_, parameters);
  }
  void SetRate(float rate) override { rate_ = rate; }
  absl::Status SaveCheckpoint(std::string state, std::vector<CheckpointFile> files) override {
    saved_[step_] = std::move(state);
    saved_files_ = std::move(files);
    return absl::OkStatus();
  }
  void Report(const Progress& progress) override { progress_.push_back(progress); }
  void Tested(double accuracy) override { tested_.push_back(accuracy); }
  void ReportParameters(uint64_t step, absl::string_view sha256) override {
    reported_parameters_[step] = std::string(sha256);
  }
  TrafficCounters traffic() const override {
    return {.bytes_up = 10 * (step_ - restored_step_), .steps = step_ - restored_step_};
  }
  absl::Status Leave() override {
    left_ = true;
    return absl::OkStatus();
  }
  void Abandon(absl::string_view reason) override { abandoned_ = std::string(reason); }

  // Accessors and settings for tests.
  //
  // Tensors submitted in this step, in order.
  const std::vector<uint32_t>& submitted() const { return submitted_; }
  const protocol::TensorTable& table() const { return table_; }
  const std::vector<Progress>& progress() const { return progress_; }
  const std::vector<double>& tested() const { return tested_; }
  const std::map<uint64_t, std::string>& reported_parameters() const {
    return reported_parameters_;
  }
  bool left() const { return left_; }
  const std::string& abandoned() const { return abandoned_; }
  const std::map<uint64_t, std::string>& saved() const { return saved_; }  // By step.
  // Files of the last checkpoint.
  const std::vector<CheckpointFile>& saved_files() const { return saved_files_; }
  // The settings below must precede Join.
  //
  // Sets the ranks that take part from this step on.
  void MembersSince(uint64_t step, std::vector<uint32_t> members) {
    members_since_[step] = std::move(members);
  }
  // Steps from `step` on have a plan with this momentum. Without a momentum in the plan, the job
  // file's momentum applies.
  void PlanFrom(uint64_t step, std::optional<float> momentum) {
    plans_[step] = std::make_shared<const protocol::CompressionPlan>(
        protocol::CompressionPlan{.id = step, .effective_step = step, .momentum = momentum});
  }
  // Acts like a session with a GPU, whose memory is host memory.
  void AcceptGpuViews() { accepts_gpu_views_ = true; }
  uint64_t gpu_views() const { return gpu_views_; }  // Number of submitted GPU views.
  void BufferSyncInterval(uint64_t steps) { buffer_sync_interval_ = steps; }
  void CheckpointEvery(uint64_t steps) { checkpoint_every_ = steps; }
  void RestoreAfter(uint64_t step, std::string state) {
    step_ = restored_step_ = step;
    restored_ = std::move(state);
  }
  uint64_t skips() const { return skips_; }
  // Acts as if no rank had a finite gradient for these tensors in `step`.
  void LeaveOut(uint64_t step, std::vector<uint32_t> tensors) {
    left_out_[step] = std::move(tensors);
  }
  void PretendNonFinite(std::string tensor) { non_finite_tensor_ = std::move(tensor); }
  // Pretends that the other ranks have closed `steps_behind` more steps after `step`, which may be
  // the step that the session joins after.
  void PretendLate(uint64_t step, uint64_t steps_behind) {
    late_step_ = step;
    steps_behind_ = steps_behind;
  }
  void FailNextSubmit(absl::Status status) { submit_failure_ = std::move(status); }

 private:
  absl::StatusOr<StepResult> Exchange();
  // Sets the means of the tensors that are due to those of all ranks, and other means to zero.
  // Returns the number of ranks that contributed.
  uint32_t TakeMeans();
  // Returns whether the open step exchanges the tensor.
  bool IsDue(uint32_t tensor) const;

  MemoryJob* const job_;
  const uint32_t rank_;
  protocol::TensorTable table_;
  std::vector<GradientView> views_;
  std::vector<bool> has_;
  std::vector<uint32_t> submitted_;
  std::vector<std::vector<float>> means_;
  std::vector<Progress> progress_;
  std::vector<double> tested_;
  std::map<uint64_t, std::string> reported_parameters_;
  std::string abandoned_;
  std::map<uint64_t, std::vector<uint32_t>> members_since_;
  std::map<uint64_t, std::shared_ptr<const protocol::CompressionPlan>> plans_;
  bool accepts_gpu_views_ = false;
  uint64_t gpu_views_ = 0;
  uint64_t buffer_sync_interval_ = 100;
  uint64_t checkpoint_every_ = 0;
  uint64_t restored_step_ = 0;
  std::string restored_;
  std::map<uint64_t, std::string> saved_;
  std::vector<CheckpointFile> saved_files_;
  std::map<uint64_t, std::vector<uint32_t>> left_out_;
  std::string non_finite_tensor_;
  absl::Status submit_failure_;
  uint64_t step_ = 0;
  float rate_ = 0;
  uint64_t skips_ = 0;
  uint64_t late_step_ = 0;
  uint64_t steps_behind_ = 0;
  std::optional<StepResult> exchanged_;  // The result of the open step, if WaitForTensors has it.
  bool left_ = false;
};

}  // namespace sluice::worker
