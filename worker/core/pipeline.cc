#include "worker/core/pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice::worker {
namespace {

// A shard that requests more resends of the same bundle is faulty.
constexpr uint32_t kRepeatsMax = 8;
// Shard 0 names a checkpoint this many steps ahead, so workers need not pass on names earlier.
constexpr uint64_t kNamedAhead = 2;
constexpr absl::Duration kRetryDelayMin = absl::Milliseconds(1);

std::string BundleName(uint32_t shard, uint32_t bundle, uint64_t step) {
  return absl::StrCat("bundle ", bundle, " of shard ", shard, " at step ", step);
}

}  // namespace

Pipeline::Pipeline(PipelineOptions options)
    : options_(std::move(options)),
      trained_(protocol::TrainedTensors(options_.table)),
      index_(options_.layout, options_.table.size()),
      check_(options_),
      inputs_(options_, index_, trained_),
      results_(options_, index_, trained_),
      next_step_(options_.parameters_agree ? options_.first_step : 0),
      catching_up_(options_.late_joiner),
      kept_(options_.layout.bundles.size(), options_.replay_bytes, options_.first_step) {
  Check(options_.first_step > 0, "step 0 is the parameter agreement");
  Check(options_.buffer_sync_interval > 0, "the interval between buffer exchanges is positive");
  shards_.resize(options_.layout.bundles.size());
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    shards_[shard].flights.resize(options_.layout.bundles[shard].size());
    bundles_ += options_.layout.bundles[shard].size();
  }
}

absl::Status Pipeline::SetPlans(absl::Span<const protocol::CompressionPlan> plans) {
  Check(!open_ && step_ == 0, "plans are known before the first step");
  if (!options_.makes_plans && plans.empty()) return absl::OkStatus();
  if (!options_.makes_plans) {
    return absl::InvalidArgumentError(
        "the job has a compression plan, but by this worker's job file it makes none");
  }
  absl::StatusOr<protocol::PlanHistory> book =
      protocol::PlanHistory::Of(plans, options_.compression, options_.table);
  if (!book.ok()) return book.status();
  const bool holds =
      options_.lockstep ? book->At(options_.first_step) != nullptr : book->newest() != nullptr;
  if (!holds) {
    return absl::InvalidArgumentError(
        absl::StrCat("no compression plan holds in step ", options_.first_step,
                     ", this worker's first step, although this job's control makes plans"));
  }
  plans_ = *std::move(book);
  if (!options_.lockstep) plans_.Replace(plans_.newest());
  return absl::OkStatus();
}

uint64_t Pipeline::bytes_in_flight() const {
  uint64_t bytes = 0;
  for (const ShardState& shard : shards_) bytes += shard.bytes_in_flight;
  return bytes;
}

void Pipeline::StartStep() {
  Check(!open_ && !inputs_.task_out(), "one step at a time");
  step_ = next_step_;
  if (options_.lockstep) plans_.ForgetBefore(step_);
  plan_ = options_.lockstep ? plans_.At(step_) : plans_.newest();
  next_step_ = step_ == 0 ? options_.first_step : step_ + 1;
  open_ = true;
  bundles_unresolved_ = bundles_;
  inputs_.StartStep(step_, AreBuffersDue(step_));
  // Step 0 published parameters, which encoders do not observe.
  const bool parameters = step_ == options_.first_step && !options_.parameters_agree;
  results_.StartStep(/*observed=*/options_.lockstep && !parameters);
  for (ShardState& state : shards_) {
    state.flights.assign(state.flights.size(), Flight());
    // Resends of earlier steps come first.
    if (state.replay.step == 0) state.next_send = 0;
  }
}

// Step 0 carries rank 0's buffers. All ranks have the same checkpoint_step_, because a result names
// a checkpoint at least two steps ahead, and every rank has that result when it begins the next
// step. The next checkpoint is named only after all ranks have begun the current checkpoint's step.
bool Pipeline::AreBuffersDue(uint64_t step) const {
  if (trained_ == options_.table.size()) return false;
  if (!options_.lockstep) return step == 0;
  return step % options_.buffer_sync_interval == 0 || step == checkpoint_step_;
}

void Pipeline::SkipBuffers(Effects* effects) {
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    while (const std::optional<uint32_t> bundle = inputs_.PassOver(shard)) {
      SetExchange(shard, *bundle, /*skip=*/true, {});
    }
    SendMore(shard, effects);
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
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    for (uint32_t bundle = 0; bundle < shards_[shard].flights.size(); ++bundle) {
      SetExchange(shard, bundle, /*skip=*/true, {});
    }
    SendMore(shard, effects);
  }
  return absl::OkStatus();
}

std::optional<EncodeTask> Pipeline::NextEncoding() {
  if (!open_ || !status_.ok()) return std::nullopt;
  std::optional<EncodeTask> task = inputs_.NextTask();
  if (!task.has_value()) return std::nullopt;
  task->published = results_.published(task->shard, task->bundle);
  task->plan = plan_;
  return task;
}

void Pipeline::Encoded(EncodedBundle encoded, Effects* effects) {
  Check(inputs_.task_out(), "a task was taken before");
  if (status_.ok() && !encoded.failure.ok()) Fail(std::move(encoded.failure), effects);
  if (!status_.ok()) return inputs_.DropTask();
  inputs_.Encoded(encoded);
  results_.DropPublished(encoded.shard, encoded.bundle);
  SetExchange(encoded.shard, encoded.bundle, encoded.skipped, std::move(encoded.frames));
  SendMore(encoded.shard, effects);
  if (inputs_.OnlyBuffersLeft()) SkipBuffers(effects);
}

void Pipeline::SetExchange(uint32_t shard, uint32_t bundle, bool skip,
                           std::vector<std::string> frames) {
  Flight& flight = shards_[shard].flights[bundle];
  flight.bytes = protocol::TotalBytes(frames);
  flight.checksum = protocol::BundleChecksum(frames);
  auto exchange = std::make_shared<protocol::ExchangeRequest>();
  exchange->sender = options_.sender;
  exchange->step = step_;
  exchange->bundle = bundle;
  exchange->skip = skip;
  exchange->frames = std::move(frames);
  exchange->acked_step = step_ > options_.first_step ? step_ - 1 : 0;
  // A worker that re-executes steps may know a checkpoint far ahead of its own step.
  const bool near = checkpoint_step_ >= step_ && checkpoint_step_ <= step_ + kNamedAhead;
  exchange->checkpoint_step = near ? checkpoint_step_ : 0;
  exchange->base_version = results_.version(shard, bundle);
  exchange->rate = rate_;
  exchange->weight = skip ? 1 : inputs_.weight(shard, bundle);
  exchange->plan_id = plan_ == nullptr ? 0 : plan_->id;
  if (options_.lockstep && bundle == 0) exchange->plan = plans_.Beginning(step_ + 1);
  if (!options_.lockstep && shard > 0 && exchange->plan_id != shards_[shard].told_plan) {
    exchange->plan = plan_;
    shards_[shard].told_plan = exchange->plan_id;
  }
  kept_.Add(shard, exchange);
  flight.exchange = std::move(exchange);
  flight.phase = Phase::kToSend;
}

Pipeline::Flight& Pipeline::FlightToSend(ShardState* state, uint32_t bundle) const {
  Flight& flight = state->flights[bundle];
  if (state->replay.step == 0) return flight;
  const bool is_open = state->replay.step == step_ && open_;
  return is_open && flight.phase != Phase::kResolved ? flight : state->replay.flights[bundle];
}

Pipeline::Flight* Pipeline::FindFlight(ShardState* state, uint64_t step, uint32_t bundle) const {
  if (state->replay.step != 0 && state->replay.step == step &&
      state->replay.flights[bundle].phase != Phase::kResolved) {
    return &state->replay.flights[bundle];
  }
  if (step != step_ || !open_ || state->flights[bundle].phase == Phase::kResolved) return nullptr;
  return &state->flights[bundle];
}

bool Pipeline::Unresolved(const ShardState& state) const {
  if (state.replay.step != 0) return true;
  return open_ && std::any_of(state.flights.begin(), state.flights.end(), [](const Flight& flight) {
           return flight.phase != Phase::kGathering && flight.phase != Phase::kResolved;
         });
}

void Pipeline::SendMore(uint32_t shard, Effects* effects) {
  ShardState& state = shards_[shard];
  if (state.paused || state.replay.asking) return;
  if (!open_ && state.replay.step == 0) return;
  for (; state.next_send < state.flights.size(); ++state.next_send) {
    Flight& flight = FlightToSend(&state, state.next_send);
    if (flight.phase == Phase::kGathering) return;
    if (flight.phase != Phase::kToSend) continue;
    const uint64_t bytes = state.bytes_in_flight + flight.bytes;
    if (state.bytes_in_flight > 0 && bytes > options_.window_bytes) return;
    state.bytes_in_flight = bytes;
    flight.phase = Phase::kSent;
    if (flight.exchange->step == step_) state.last_sent = {step_, state.next_send};
    effects->push_back(SendExchange{shard, flight.exchange});
  }
}

void Pipeline::SendAgain(ShardState* state, uint32_t bundle, Flight* flight) const {
  if (flight->phase == Phase::kSent) state->bytes_in_flight -= flight->bytes;
  flight->phase = Phase::kToSend;
  // If the flight is of a later step than the one being resent, the stream sends it later.
  if (&FlightToSend(state, bundle) == flight) state->next_send = std::min(state->next_send, bundle);
}

void Pipeline::StreamReset(uint32_t shard, Effects* effects) {
  if (!status_.ok()) return;
  ShardState& state = shards_[shard];
  for (std::vector<Flight>* flights : {&state.flights, &state.replay.flights}) {
    for (uint32_t bundle = 0; bundle < flights->size(); ++bundle) {
      Flight& flight = (*flights)[bundle];
      if (flight.phase != Phase::kSent && flight.phase != Phase::kAdmitted) continue;
      SendAgain(&state, bundle, &flight);
    }
  }
  if (state.replay.asking) return AskWhatIsLost(shard, effects);
  if (!Unresolved(state)) return AskForLastSent(shard, effects);
  SendMore(shard, effects);
}

void Pipeline::RetryDue(uint32_t shard, Effects* effects) {
  ShardState& state = shards_[shard];
  state.paused = false;
  if (!status_.ok()) return;
  if (state.replay.asking) return AskWhatIsLost(shard, effects);
  if (!Unresolved(state)) return AskForLastSent(shard, effects);
  SendMore(shard, effects);
}

void Pipeline::PauseFor(uint32_t shard, uint32_t retry_after_ms, Effects* effects) {
  if (shards_[shard].paused) return;
  shards_[shard].paused = true;
  effects->push_back(
      RetryLater{shard, std::max(kRetryDelayMin, absl::Milliseconds(retry_after_ms))});
}

void Pipeline::Answer(uint32_t shard, protocol::ExchangeReply answer, Effects* effects) {
  if (!status_.ok()) return;
  if (answer.outcome == protocol::Outcome::kFenced) return Fail(Fenced(shard, answer), effects);
  // A late answer must not lower the step. Shard 0 names checkpoints; the other shards pass the
  // names to workers that missed them.
  checkpoint_step_ = std::max(checkpoint_step_, answer.checkpoint_step);
  ShardState& state = shards_[shard];
  if (answer.bundle >= state.flights.size()) return Fail(NotSent(shard, answer), effects);
  if (answer.outcome == protocol::Outcome::kNeed && HandleNeed(shard, answer, effects)) return;
  if (answer.outcome == protocol::Outcome::kBusy && state.replay.asking) {
    return PauseFor(shard, answer.retry_after_ms, effects);
  }
  if (answer.outcome == protocol::Outcome::kResult) {
    absl::Status same = CheckRepeat(shard, answer);
    if (!same.ok()) return Fail(std::move(same), effects);
  }
  Flight* const flight = FindFlight(&state, answer.step, answer.bundle);
  if (flight == nullptr || flight->phase == Phase::kGathering) {
    const bool sent = answer.step < step_ || (answer.step == step_ && flight == nullptr);
    // This BUSY may answer the question on a new stream. It does not show whether the process is
    // new. A new process must get the kept contributions first, so the worker asks again.
    const bool asks_again =
        answer.outcome == protocol::Outcome::kBusy && sent && !Unresolved(state);
    if (asks_again && kept_.from() > 0) return PauseFor(shard, answer.retry_after_ms, effects);
    // A shard sends results to the present holder of the rank, even for work of an earlier holder.
    if (sent || answer.outcome == protocol::Outcome::kResult) return;
    // The question was sent twice, and the shard has answered the first copy.
    if (answer.step <= state.asked_step && !state.replay.asking) return;
    return Fail(state.replay.asking ? CannotAsk(shard, answer) : NotSent(shard, answer), effects);
  }
  switch (answer.outcome) {
    case protocol::Outcome::kResult:
      if (flight == &state.flights[answer.bundle]) {
        return Resolve(shard, std::move(answer), effects);
      }
      return ResolveRepeat(shard, answer.bundle, effects);
    case protocol::Outcome::kPending:
      // A bundle that waits to be resent keeps waiting, because its result may get lost.
      if (flight->phase != Phase::kSent) return;
      flight->phase = Phase::kAdmitted;
      state.bytes_in_flight -= flight->bytes;
      break;
    case protocol::Outcome::kNeed:
      if (++flight->repeats_asked > kRepeatsMax) {
        return Fail(absl::InternalError(absl::StrCat(
                        "shard ", shard, " asked ", kRepeatsMax + 1, " times for ",
                        BundleName(shard, answer.bundle, answer.step), ", which it had been sent")),
                    effects);
      }
      SendAgain(&state, answer.bundle, flight);
      break;
    case protocol::Outcome::kBusy:
      SendAgain(&state, answer.bundle, flight);
      return PauseFor(shard, answer.retry_after_ms, effects);
    case protocol::Outcome::kInvalid:
      // The shard rejects a request that was sent before this worker knew of the new process.
      if (flight->phase == Phase::kToSend) return;
      return Fail(absl::InvalidArgumentError(absl::StrCat(
                      "shard ", shard, " refused ", BundleName(shard, answer.bundle, answer.step),
                      " from rank ", options_.sender.rank, ": ", answer.message)),
                  effects);
    case protocol::Outcome::kFenced:
      return;  // Handled above.
  }
  SendMore(shard, effects);
}

absl::Status Pipeline::NotSent(uint32_t shard, const protocol::ExchangeReply& answer) const {
  return absl::InternalError(absl::StrCat(
      "shard ", shard, " answered ", BundleName(shard, answer.bundle, answer.step), ", which rank ",
      options_.sender.rank, " has not sent: do both run the same version?"));
}

absl::Status Pipeline::Fenced(uint32_t shard, const protocol::ExchangeReply& answer) const {
  if (answer.term > options_.sender.term) {
    return RollbackError(absl::StrCat("shard ", shard, " says that the job rolled back (term ",
                                      answer.term, "): ", answer.message));
  }
  return absl::AbortedError(absl::StrCat("shard ", shard, " no longer accepts rank ",
                                         options_.sender.rank, ": ", answer.message));
}

void Pipeline::Resolve(uint32_t shard, protocol::ExchangeReply answer, Effects* effects) {
  ShardState& state = shards_[shard];
  Flight& flight = state.flights[answer.bundle];
  absl::Status valid = check_.Check(shard,
                                    {.checksum = flight.checksum,
                                     .version = results_.version(shard, answer.bundle),
                                     .catching_up = catching_up_},
                                    answer);
  // Takes plans only from results of the open step: answers to a predecessor may be far ahead.
  if (valid.ok()) valid = RecordPlan(shard, answer);
  if (!valid.ok()) {
    return Fail(
        absl::Status(valid.code(), absl::StrCat("shard ", shard, " sent a wrong result for ",
                                                BundleName(shard, answer.bundle, answer.step), ": ",
                                                valid.message())),
        effects);
  }
  if (flight.phase == Phase::kSent) state.bytes_in_flight -= flight.bytes;
  flight.phase = Phase::kResolved;
  flight.exchange.reset();
  if (ReplayBuffer::Entry* kept = kept_.Find(shard, step_, answer.bundle)) {
    kept->result_checksum = answer.record.result_checksum;
    kept->announced = answer.plan;
  }
  results_.Add(shard, std::move(answer));
  SendMore(shard, effects);
  if (--bundles_unresolved_ > 0) return;
  open_ = false;
  // If every bundle was still open when this worker's contribution arrived, every later step waits
  // for this worker.
  catching_up_ = catching_up_ && !results_.InTime(step_);
  effects->push_back(StepDone{step_});
}

absl::Status Pipeline::RecordPlan(uint32_t shard, const protocol::ExchangeReply& answer) {
  if (answer.plan == nullptr) return absl::OkStatus();
  absl::Status fits = check_.CheckPlan(shard, answer);
  if (fits.ok() && options_.lockstep) fits = plans_.Learn(answer.plan);
  // Shard 0's current plan overrides the plan from a checkpoint.
  if (fits.ok() && !options_.lockstep) plans_.Replace(answer.plan);
  if (fits.ok()) return fits;
  return absl::InvalidArgumentError(
      absl::StrCat("compression plan ", answer.plan->id, " is invalid: ", fits.message()));
}

StepResult Pipeline::Result() const {
  StepResult result = results_.Summary(step_);
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
  if (step_ == 0 || !options_.lockstep) return {};
  return results_.TakePublished();
}

std::optional<uint32_t> Pipeline::MissingTensor() const {
  return open_ ? inputs_.MissingTensor() : std::nullopt;
}

void Pipeline::Fail(absl::Status status, Effects* effects) {
  status_ = std::move(status);
  effects->push_back(PipelineFailed{status_});
}

}  // namespace sluice::worker
