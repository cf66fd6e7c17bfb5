// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/simulated_worker.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice::planning {
namespace {

// The gradient of every bundle.
constexpr std::array<float, 1> kGradient = {0};

// Returns the answer with a record that lists only the rank's own contributions and one other. A
// pipeline looks for its own; a full record of a thousand ranks would cost more time than the rest.
protocol::ExchangeReply WithShortRecord(const protocol::ExchangeReply& full, uint32_t rank) {
  protocol::ExchangeReply answer;
  answer.outcome = full.outcome;
  answer.step = full.step;
  answer.bundle = full.bundle;
  answer.results = full.results;
  answer.base_version = full.base_version;
  answer.version = full.version;
  answer.need_from = full.need_from;
  answer.retry_after_ms = full.retry_after_ms;
  answer.message = full.message;
  answer.term = full.term;
  answer.exact = full.exact;
  answer.staleness = full.staleness;
  answer.open_step = full.open_step;
  answer.members = full.members;
  const protocol::ClosingRecord& record = full.record;
  answer.record.term = record.term;
  answer.record.step = record.step;
  answer.record.bundle = record.bundle;
  answer.record.result_checksum = record.result_checksum;
  const auto own = std::lower_bound(
      record.included.begin(), record.included.end(), rank,
      [](const protocol::Included& included, uint32_t of) { return included.rank < of; });
  const auto end = std::find_if(own, record.included.end(),
                                [&](const auto& included) { return included.rank != rank; });
  std::vector<protocol::Included>& included = answer.record.included;
  included.assign(own, end);
  const auto counts = [](const protocol::Included& one) { return !one.skipped; };
  if (record.n > 0 && std::none_of(included.begin(), included.end(), counts)) {
    const auto before = std::find_if(record.included.begin(), own, counts);
    if (before != own) {
      included.insert(included.begin(), *before);
    } else {
      included.push_back(*std::find_if(end, record.included.end(), counts));
    }
  }
  for (const protocol::Included& one : included) answer.record.n += one.skipped ? 0 : one.weight;
  return answer;
}

}  // namespace

SimulatedWorker::SimulatedWorker(uint32_t rank, const WorkerPlan* plan, const World* world,
                                 MailRoom* mail)
    : rank_(rank), plan_(*plan), world_(*world), mail_(mail) {}

void SimulatedWorker::Begin(uint64_t incarnation, uint32_t generation, uint64_t first_step,
                            bool is_newcomer) {
  const protocol::Sender sender = {.job_uid = world_.job->job_uid(),
                                   .term = 0,
                                   .rank = rank_,
                                   .incarnation = incarnation,
                                   .generation = generation,
                                   .server_incarnation = 0};
  pipeline_ =
      std::make_unique<worker::Pipeline>(world_.job->ForWorker(sender, first_step, is_newcomer));
  behind_ = is_newcomer ? 1 : 0;
  encodes_ = false;
  BeginStep();
}

void SimulatedWorker::Die() {
  ++life_;
  pipeline_.reset();
}

void SimulatedWorker::Resume() {
  paused_ = false;
  for (const Event& event : std::exchange(kept_events_, {})) world_.queue->Add(world_.now(), event);
  for (Mail& mail : std::exchange(kept_mail_, {})) Receive(std::move(mail));
}

const std::vector<BundlePlace>& SimulatedWorker::order() const {
  return plan_.order[(pipeline_->step() - 1) % plan_.order.size()];
}

double SimulatedWorker::LeadShare() const {
  Nanos longest = 0;
  for (uint32_t shard = 0; shard < world_.job->layout().bundles.size(); ++shard) {
    longest = std::max(longest, world_.network->Latency(rank_, world_.workers + shard));
  }
  return lead_.Share(absl::Nanoseconds(2 * longest));
}

void SimulatedWorker::BeginStep() {
  pipeline_->LimitLead(LeadShare());
  pipeline_->StartStep();
  exchange_began_.reset();
  times_ = {.begins = world_.now()};
  submitted_ = 0;
  computed_ = false;
  has_results_ = false;
  apply_left_ = 0;
  applied_at_ = 0;
  if (pipeline_->step() == 0) return BeginParameters();
  if (behind_ == 0) return Compute();
  --behind_;
  computed_ = true;
  Effects effects;
  const absl::Status skipped = pipeline_->SkipStep(&effects);
  if (!skipped.ok()) return world_.record->Fail(skipped);
  Carry(effects);
}

// In step 0, rank 0 sends the parameters.
void SimulatedWorker::BeginParameters() {
  computed_ = true;
  Effects effects;
  if (rank_ > 0) {
    const absl::Status skipped = pipeline_->SkipStep(&effects);
    if (!skipped.ok()) return world_.record->Fail(skipped);
    return Carry(effects);
  }
  for (const std::vector<BundlePlace>& places : plan_.order) {
    for (const BundlePlace& place : places) Submit(place);
  }
  EncodeNext();
}

void SimulatedWorker::Compute() {
  const ComputeSpec& compute = plan_.compute;
  const double step_s =
      compute.step_s * ComputeFactor(plan_.stragglers, plan_.seed, rank_, pipeline_->step());
  const double before = step_s * static_cast<double>(compute.steps_before);
  const double meanwhile = step_s * static_cast<double>(compute.steps_meanwhile);
  times_.computes = FromSeconds(before + meanwhile);
  const Nanos now = world_.now();
  const std::vector<BundlePlace>& places = order();
  pipeline_->SetWork({.samples = 0,
                      .steps = compute.steps_before,
                      .slack_us = static_cast<uint64_t>(meanwhile * 1e6)});
  for (size_t i = 0; i < places.size(); ++i) {
    if (i + 1 < places.size() && (compute.overlap == 0 || places[i].ready == places[i + 1].ready)) {
      continue;
    }
    const double left = step_s * compute.overlap * (1 - places[i].ready);
    world_.queue->Add(now + FromSeconds(before - left),
                      Mine(EventKind::kBundleReady, static_cast<uint32_t>(i + 1)));
  }
  if (server::RankMeasurements* of = world_.record->Measured(pipeline_->step(), rank_)) {
    of->compute_s = ToSeconds(times_.computes);
  }
  world_.queue->Add(now + times_.computes, Mine(EventKind::kComputed));
}

void SimulatedWorker::Handle(const Event& event) {
  if (event.life != life_ || pipeline_ == nullptr) return;
  if (paused_) {
    kept_events_.push_back(event);
    return;
  }
  Effects effects;
  switch (event.kind) {
    case EventKind::kBundleReady:
      return BundlesReady(event.what);
    case EventKind::kEncoded:
      return Encoded();
    case EventKind::kComputed:
      computed_ = true;
      applied_at_ = world_.now() + apply_left_;
      return Adopt();
    case EventKind::kApplied:
      return Applied();
    case EventKind::kRetry:
      pipeline_->RetryDue(event.what, &effects);
      return Carry(effects);
    default:
      Check(false, "the event belongs to a worker");
  }
}

void SimulatedWorker::BundlesReady(size_t end) {
  for (; submitted_ < end; ++submitted_) Submit(order()[submitted_]);
  EncodeNext();
}

void SimulatedWorker::Submit(const BundlePlace& place) {
  const absl::Status submitted = pipeline_->TensorReady(
      world_.job->tensor(place.shard, place.bundle), {kGradient.data(), kGradient.size()});
  if (!submitted.ok()) world_.record->Fail(submitted);
}

void SimulatedWorker::EncodeNext() {
  if (encodes_) return;
  const std::optional<worker::EncodeTask> task = pipeline_->NextEncoding();
  if (!task.has_value()) return;
  encodes_ = true;
  task_ = {.step = task->step,
           .shard = task->shard,
           .bundle = task->bundle,
           .frames = {world_.job->frame()}};
  const BundleCost& cost = world_.coding->Up(task->step, rank_)[task->shard][task->bundle];
  const Nanos takes = static_cast<Nanos>(cost.encode_ns) + world_.MessageTime(cost.bytes);
  if (server::RankMeasurements* of = world_.record->Measured(task->step, rank_)) {
    of->encode_s += ToSeconds(takes);
  }
  world_.queue->Add(world_.now() + takes, Mine(EventKind::kEncoded));
}

void SimulatedWorker::Encoded() {
  encodes_ = false;
  Effects effects;
  pipeline_->Encoded(std::exchange(task_, {}), &effects);
  Carry(effects);
  EncodeNext();
}

void SimulatedWorker::Carry(const Effects& effects) {
  for (const worker::PipelineEffect& effect : effects) {
    if (const auto* const send = std::get_if<worker::SendExchange>(&effect)) Send(*send);
    if (const auto* const retry = std::get_if<worker::RetryLater>(&effect)) {
      world_.queue->Add(world_.now() + absl::ToInt64Nanoseconds(retry->delay),
                        Mine(EventKind::kRetry, retry->shard));
    }
    if (std::holds_alternative<worker::StepDone>(effect)) {
      has_results_ = true;
      if (exchange_began_.has_value()) {
        lead_.ExchangeTook(absl::Nanoseconds(world_.now() - *exchange_began_));
      }
    }
    if (const auto* const failed = std::get_if<worker::PipelineFailed>(&effect)) {
      world_.record->Fail(absl::InternalError(
          absl::StrCat("worker ", rank_, " failed: ", failed->status.message())));
    }
  }
}

void SimulatedWorker::Send(const worker::SendExchange& send) {
  const protocol::ExchangeRequest& request = *send.exchange;
  Mail mail;
  mail.worker = rank_;
  mail.shard = send.shard;
  mail.life = life_;
  if (!request.skip) {
    mail.frame_bytes = world_.coding->Up(request.step, rank_)[send.shard][request.bundle].bytes;
  }
  mail.bytes = MessageBytes(request, mail.frame_bytes);
  mail.sent = world_.now();
  mail.request = send.exchange;
  if (request.step > 0) {
    if (!exchange_began_.has_value()) exchange_began_ = world_.now();
    world_.record->SentUp(mail.bytes);
  }
  mail_->Send(world_, std::move(mail));
}

void SimulatedWorker::Receive(Mail mail) {
  if (mail.life != life_ || pipeline_ == nullptr) return;
  if (paused_) {
    kept_mail_.push_back(std::move(mail));
    return;
  }
  const protocol::ExchangeReply& answer = *mail.answer;
  if (!answer.results.empty()) {
    const BundleCosts& costs =
        answer.exact ? world_.coding->parameters() : world_.coding->Down(answer.step);
    const Nanos takes = world_.MessageTime(mail.bytes) +
                        static_cast<Nanos>(costs[mail.shard][answer.bundle].add_ns);
    if (computed_) {
      applied_at_ = std::max(applied_at_, world_.now()) + takes;
    } else {
      apply_left_ += takes;
    }
    if (server::RankMeasurements* of = world_.record->Measured(answer.step, rank_)) {
      of->apply_s += ToSeconds(takes);
    }
  }
  Effects effects;
  pipeline_->Answer(mail.shard, WithShortRecord(answer, rank_), &effects);
  Carry(effects);
  EncodeNext();
  Adopt();
}

// Adopts the results once all of them are here and the worker has computed.
void SimulatedWorker::Adopt() {
  if (!computed_ || !std::exchange(has_results_, false)) return;
  world_.queue->Add(std::max(world_.now(), applied_at_), Mine(EventKind::kApplied));
}

void SimulatedWorker::Applied() {
  const uint64_t step = pipeline_->step();
  times_.ends = world_.now();
  const worker::StepResult result = pipeline_->Result();
  behind_ = std::max(behind_, result.steps_behind);
  if (times_.computes > 0 || plan_.compute.step_s == 0) world_.record->Exchanged(step, times_);
  if (server::RankMeasurements* of = world_.record->Measured(step, rank_)) {
    of->exposed_s = ToSeconds(times_.ends - times_.begins - times_.computes);
  }
  if (step >= plan_.steps) {
    finished_ = true;
    return;
  }
  BeginStep();
}

}  // namespace sluice::planning
