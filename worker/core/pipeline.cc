// SPDX-License-Identifier: Apache-2.0
#include "worker/core/pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice::worker {

Pipeline::Pipeline(PipelineOptions options)
    : options_(std::move(options)),
      trained_(protocol::TrainedTensors(options_.table)),
      index_(options_.layout, options_.table.size()),
      check_(options_),
      inputs_(options_, index_, trained_),
      results_(options_, index_, trained_),
      late_(options_),
      next_step_(options_.parameters_agree ? options_.first_step : 0),
      catching_up_(options_.late_joiner),
      kept_(options_.layout.bundles.size(), options_.replay_bytes, options_.first_step),
      told_plans_(options_.layout.bundles.size()) {
  Check(options_.first_step > 0, "step 0 is the parameter agreement");
  Check(options_.exchange.buffer_sync_interval > 0,
        "the interval between buffer exchanges is positive");
  senders_.reserve(options_.layout.bundles.size());
  for (uint32_t shard = 0; shard < options_.layout.bundles.size(); ++shard) {
    senders_.emplace_back(shard, options_, &kept_);
    bundles_ += options_.layout.bundles[shard].size();
  }
}

absl::Status Pipeline::SetPlans(absl::Span<const protocol::CompressionPlan> plans) {
  Check(!open_ && step_ == 0, "plans are known before the first step");
  if (!options_.exchange.control.makes_plans() && plans.empty()) return absl::OkStatus();
  if (!options_.exchange.control.makes_plans()) {
    return absl::InvalidArgumentError(
        "the job has a compression plan, but by this worker's job file it makes none");
  }
  absl::StatusOr<protocol::PlanHistory> book =
      protocol::PlanHistory::Of(plans, options_.exchange.compression, options_.table);
  if (!book.ok()) return book.status();
  const bool holds = options_.exchange.in_lockstep() ? book->At(options_.first_step) != nullptr
                                                     : book->newest() != nullptr;
  if (!holds) {
    return absl::InvalidArgumentError(
        absl::StrCat("no compression plan holds in step ", options_.first_step,
                     ", this worker's first step, although this job's control makes plans"));
  }
  plans_ = *std::move(book);
  if (!options_.exchange.in_lockstep()) plans_.Replace(plans_.newest());
  return absl::OkStatus();
}

uint64_t Pipeline::bytes_in_flight() const {
  uint64_t bytes = 0;
  for (const ShardSender& sender : senders_) bytes += sender.bytes_in_flight();
  return bytes;
}

void Pipeline::LimitLead(double share) {
  const job::ExchangeSpec& exchange = options_.exchange;
  if (!exchange.in_lockstep() || exchange.quorum > 0 || options_.rack_of > 0) return;
  for (ShardSender& sender : senders_) sender.LimitLead(share);
}

void Pipeline::StartStep() {
  Check(!open_ && !inputs_.task_out(), "one step at a time");
  step_ = next_step_;
  if (options_.exchange.in_lockstep()) plans_.ForgetBefore(step_);
  plan_ = options_.exchange.in_lockstep() ? plans_.At(step_) : plans_.newest();
  next_step_ = step_ == 0 ? options_.first_step : step_ + 1;
  open_ = true;
  bundles_unresolved_ = bundles_;
  inputs_.StartStep(step_, AreBuffersDue(step_));
  // Step 0 published parameters, which encoders do not observe.
  const bool parameters = step_ == options_.first_step && !options_.parameters_agree;
  results_.StartStep(/*observed=*/options_.exchange.in_lockstep() && !parameters);
  for (ShardSender& sender : senders_) sender.StartStep(step_);
}

// Step 0 carries rank 0's buffers. All ranks have the same checkpoint_step_, because a result names
// a checkpoint at least two steps ahead, and every rank has that result when it begins the next
// step. The next checkpoint is named only after all ranks have begun the current checkpoint's step.
bool Pipeline::AreBuffersDue(uint64_t step) const {
  if (trained_ == options_.table.size()) return false;
  if (!options_.exchange.in_lockstep()) return step == 0;
  return step % options_.exchange.buffer_sync_interval == 0 || step == checkpoint_step_;
}

void Pipeline::SkipNotDue(Effects* effects) {
  for (uint32_t shard = 0; shard < senders_.size(); ++shard) {
    for (const uint32_t bundle : inputs_.NotDue(shard)) {
      Send(shard, bundle, /*skip=*/true, {}, effects);
    }
  }
}

absl::Status Pipeline::TensorReady(uint32_t tensor, const GradientView& gradient) {
  if (!status_.ok()) return status_;
  Check(open_, "tensors belong to a step");
  if (catching_up_) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", step_,
                     ": this worker has joined a job that is further and does not wait for it "
                     "yet: skip steps while steps_behind is not 0"));
  }
  return inputs_.Submit(tensor, gradient);
}

absl::Status Pipeline::SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions) {
  if (!status_.ok()) return status_;
  if (!open_) {
    return absl::FailedPreconditionError(absl::StrCat("a weight was set when step ", step_,
                                                      " was done: set it before the last "
                                                      "tensor of its bundle is submitted"));
  }
  return inputs_.SetWeight(shard, bundle, contributions);
}

absl::Status Pipeline::SkipStep(Effects* effects) {
  if (!status_.ok()) return status_;
  Check(open_, "a skip belongs to a step");
  absl::Status skipped = inputs_.Skip();
  if (!skipped.ok()) return skipped;
  for (uint32_t shard = 0; shard < senders_.size(); ++shard) {
    for (uint32_t bundle = 0; bundle < options_.layout.bundles[shard].size(); ++bundle) {
      Send(shard, bundle, /*skip=*/true, {}, effects);
    }
  }
  return absl::OkStatus();
}

std::optional<EncodeTask> Pipeline::NextEncoding() {
  if (!open_ || !status_.ok()) return std::nullopt;
  std::optional<EncodeTask> task = inputs_.NextTask();
  if (!task.has_value()) return std::nullopt;
  task->published = results_.published(task->shard, task->bundle);
  task->plan = plan_;
  task->returned = late_.Take(task->shard, task->bundle);
  return task;
}

void Pipeline::Encoded(EncodedBundle encoded, Effects* effects) {
  Check(inputs_.task_out(), "a task was taken before");
  if (status_.ok() && !encoded.failure.ok()) Fail(std::move(encoded.failure), effects);
  if (!status_.ok()) return inputs_.DropTask();
  inputs_.Encoded(encoded);
  results_.DropPublished(encoded.shard, encoded.bundle);
  Send(encoded.shard, encoded.bundle, encoded.skipped, std::move(encoded.frames), effects);
  if (inputs_.to_encode() == 0) SkipNotDue(effects);
}

void Pipeline::Send(uint32_t shard, uint32_t bundle, bool skip, std::vector<std::string> frames,
                    Effects* effects) {
  auto exchange = std::make_shared<protocol::ExchangeRequest>();
  exchange->sender = options_.sender;
  exchange->step = step_;
  exchange->bundle = bundle;
  exchange->skip = skip;
  exchange->frames = std::move(frames);
  exchange->acked_step = step_ > options_.first_step ? step_ - 1 : 0;
  // A worker that re-executes steps may know a checkpoint far ahead of its own step. Workers need
  // not pass on names earlier than shard 0 names them.
  const bool near = checkpoint_step_ >= step_ && checkpoint_step_ <= step_ + protocol::kNamedAhead;
  exchange->checkpoint_step = near ? checkpoint_step_ : 0;
  exchange->base_version = results_.version(shard, bundle);
  exchange->rate = rate_;
  exchange->work = work_;
  exchange->weight = skip ? 1 : inputs_.weight(shard, bundle);
  exchange->plan_id = plan_ == nullptr ? 0 : plan_->id;
  if (options_.exchange.in_lockstep() && bundle == 0) exchange->plan = plans_.Beginning(step_ + 1);
  if (!options_.exchange.in_lockstep() && shard > 0 && exchange->plan_id != told_plans_[shard]) {
    exchange->plan = plan_;
    told_plans_[shard] = exchange->plan_id;
  }
  senders_[shard].Send(std::move(exchange), effects);
}

void Pipeline::StreamReset(uint32_t shard, Effects* effects) {
  if (status_.ok()) senders_[shard].StreamReset(effects);
}

void Pipeline::RetryDue(uint32_t shard, Effects* effects) {
  if (status_.ok()) senders_[shard].RetryDue(effects);
}

void Pipeline::ShardReplaced(uint32_t shard, Effects* effects) {
  if (status_.ok()) senders_[shard].ShardReplaced(effects);
}

void Pipeline::Answer(uint32_t shard, protocol::ExchangeReply answer, Effects* effects) {
  if (!status_.ok()) return;
  if (answer.outcome == protocol::Outcome::kFenced) return Fail(Fenced(shard, answer), effects);
  // A late answer must not lower the step. Shard 0 names checkpoints; the other shards pass the
  // names to workers that missed them.
  checkpoint_step_ = std::max(checkpoint_step_, answer.checkpoint_step);
  absl::StatusOr<ShardSender::News> news = senders_[shard].Answer(answer, effects);
  if (!news.ok()) return Fail(std::move(news).status(), effects);
  switch (*news) {
    case ShardSender::News::kNone:
      return;
    case ShardSender::News::kResult:
      return Resolve(shard, std::move(answer), effects);
    case ShardSender::News::kReplayEnded:
      return ReleaseKept();
  }
}

absl::Status Pipeline::Fenced(uint32_t shard, const protocol::ExchangeReply& answer) const {
  if (answer.term > options_.sender.term) {
    return RollbackError(absl::StrCat("shard ", shard, " says that the job rolled back (term ",
                                      answer.term, "): ", answer.message));
  }
  return absl::AbortedError(absl::StrCat("shard ", shard, " no longer accepts rank ",
                                         options_.sender.rank, ": ", answer.message));
}

absl::Status Pipeline::CheckResult(uint32_t shard, const protocol::ExchangeReply& answer) {
  absl::Status valid = check_.Check(shard,
                                    {.checksum = senders_[shard].checksum(answer.bundle),
                                     .version = results_.version(shard, answer.bundle),
                                     .catching_up = catching_up_},
                                    answer);
  // The worker takes plans only from results of the open step, because answers to a predecessor may
  // be far ahead.
  if (valid.ok()) valid = RecordPlan(shard, answer);
  if (valid.ok()) return valid;
  return absl::Status(
      valid.code(),
      absl::StrCat("shard ", shard, " sent a wrong result for bundle ", answer.bundle, " of shard ",
                   shard, " at step ", answer.step, ": ", valid.message()));
}

void Pipeline::Resolve(uint32_t shard, protocol::ExchangeReply answer, Effects* effects) {
  absl::Status valid = CheckResult(shard, answer);
  if (!valid.ok()) return Fail(std::move(valid), effects);
  late_.Resolve(shard, answer, senders_[shard].contribution(answer.bundle));
  senders_[shard].Resolve(answer, effects);
  results_.Add(shard, std::move(answer));
  if (--bundles_unresolved_ > 0) return;
  open_ = false;
  // In lockstep, every later step waits for this worker if every bundle was still open when this
  // worker's contribution arrived. In other modes, the worker must have reached the slowest member.
  const uint64_t latest = options_.exchange.in_lockstep() ? step_ : step_ + 1;
  catching_up_ = catching_up_ && !results_.InTime(latest);
  effects->push_back(StepDone{step_});
}

absl::Status Pipeline::RecordPlan(uint32_t shard, const protocol::ExchangeReply& answer) {
  if (answer.plan == nullptr) return absl::OkStatus();
  absl::Status fits = check_.CheckPlan(shard, answer);
  if (fits.ok() && options_.exchange.in_lockstep()) fits = plans_.Learn(answer.plan);
  // Shard 0's current plan overrides the plan from a checkpoint.
  if (fits.ok() && !options_.exchange.in_lockstep()) plans_.Replace(answer.plan);
  if (fits.ok()) return fits;
  return absl::InvalidArgumentError(
      absl::StrCat("compression plan ", answer.plan->id, " is invalid: ", fits.message()));
}

StepResult Pipeline::Result() const {
  // Without lockstep, only a newcomer counts as late: after a rollback, shards may be ahead of it.
  StepResult result =
      results_.Summary(step_, /*may_lag=*/options_.exchange.in_lockstep() || catching_up_);
  inputs_.AddSkippedTo(&result);
  result.checkpoint_due = step_ > 0 && step_ == checkpoint_step_;
  result.plan = plan_;
  if (catching_up_) result.steps_behind = std::max(result.steps_behind, uint64_t{1});
  return result;
}

absl::StatusOr<std::vector<ResultPart>> Pipeline::Parts(uint32_t tensor, size_t elements,
                                                        ResultUse use) const {
  absl::StatusOr<std::vector<ResultPart>> parts = results_.Parts(tensor, elements, use);
  Check(!parts.ok() || !open_ || IsReady(tensor), "the results of the tensor have arrived");
  return parts;
}

std::vector<Published> Pipeline::TakePublished() {
  Check(!open_ && !inputs_.task_out(), "results are whole when the step is done");
  // Step 0 published parameters, which encoders do not observe.
  if (step_ == 0 || !options_.exchange.in_lockstep()) return {};
  return results_.TakePublished();
}

std::optional<uint32_t> Pipeline::MissingTensor() const {
  return open_ ? inputs_.MissingTensor() : std::nullopt;
}

void Pipeline::Release(uint64_t durable_step) {
  durable_step_ = std::max(durable_step_, durable_step);
  ReleaseKept();
}

// Releases nothing during a replay, because the shard may have restarted from the previous
// checkpoint.
void Pipeline::ReleaseKept() {
  for (const ShardSender& sender : senders_) {
    if (sender.is_replaying()) return;
  }
  kept_.Release(durable_step_);
}

void Pipeline::Fail(absl::Status status, Effects* effects) {
  status_ = std::move(status);
  effects->push_back(PipelineFailed{status_});
}

}  // namespace sluice::worker
