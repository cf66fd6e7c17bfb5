#include "worker/core/pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/frame.h"

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
      next_step_(options_.parameters_agree ? options_.first_step : 0),
      catching_up_(options_.late_joiner),
      arrivals_(options_.layout, options_.table.size()),
      kept_(options_.layout.bundles.size(), options_.replay_bytes, options_.first_step) {
  const protocol::Layout& layout = options_.layout;
  Check(options_.first_step > 0, "step 0 is the parameter agreement");
  Check(options_.buffer_sync_interval > 0, "the interval between buffer exchanges is positive");
  first_chunk_.assign(options_.table.size() + 1, static_cast<uint32_t>(layout.chunks.size()));
  position_.resize(layout.chunks.size());
  for (size_t id = layout.chunks.size(); id-- > 0;) {
    first_chunk_[layout.chunks[id].tensor] = static_cast<uint32_t>(id);
  }
  shards_.resize(layout.bundles.size());
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    shards_[shard].flights.resize(layout.bundles[shard].size());
    shards_[shard].versions.resize(layout.bundles[shard].size());
    bundles_ += layout.bundles[shard].size();
    for (const protocol::Bundle& bundle : layout.bundles[shard]) {
      trained_bundles_ += bundle.buffers ? 0 : 1;
      for (uint32_t i = 0; i < bundle.chunks.size(); ++i) position_[bundle.chunks[i]] = i;
    }
  }
  gradients_.resize(options_.table.size());
  ready_.resize(options_.table.size());
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
  Check(!open_ && !encoding_, "one step at a time");
  step_ = next_step_;
  buffers_due_ = AreBuffersDue(step_);
  if (options_.lockstep) plans_.ForgetBefore(step_);
  plan_ = options_.lockstep ? plans_.At(step_) : plans_.newest();
  next_step_ = step_ == 0 ? options_.first_step : step_ + 1;
  open_ = true;
  skipped_ = false;
  bundles_to_encode_ = buffers_due_ ? bundles_ : trained_bundles_;
  bundles_unresolved_ = bundles_;
  bundles_skipped_here_ = 0;
  first_skipped_tensor_.clear();
  first_skipped_buffer_.clear();
  ready_.assign(ready_.size(), false);
  arrivals_.StartStep();
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    ShardState& state = shards_[shard];
    for (size_t bundle = 0; bundle < state.flights.size(); ++bundle) {
      BundleState& flight = state.flights[bundle];
      std::vector<std::string> published =
          std::move(flight.results.empty() ? flight.published : flight.results);
      const bool taken = flight.taken;
      flight = BundleState();
      // Step 0 published parameters, which encoders do not observe.
      const bool parameters = step_ == options_.first_step && !options_.parameters_agree;
      if (!taken && !parameters && options_.lockstep) {
        flight.published = std::move(published);
      }
      flight.chunks_missing =
          static_cast<uint32_t>(options_.layout.bundles[shard][bundle].chunks.size());
    }
    state.next_encoding = 0;
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
    ShardState& state = shards_[shard];
    while (state.next_encoding < state.flights.size()) {
      SetExchange(shard, state.next_encoding++, /*skip=*/true, {});
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
  if (tensor >= options_.table.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", tensor, " was submitted, but the job has ", options_.table.size(), " tensors"));
  }
  const protocol::TensorInfo& info = options_.table[tensor];
  if (gradient.size != info.elements()) {
    return absl::InvalidArgumentError(absl::StrCat("a gradient of ", gradient.size,
                                                   " elements was submitted for ", ToString(info)));
  }
  if (tensor >= trained_ && !buffers_due_) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer ", info.name, " was submitted, but buffers are not averaged in step ",
                     step_, ": submit them only if BuffersDue returns true"));
  }
  if (skipped_ || ready_[tensor]) {
    return absl::InvalidArgumentError(absl::StrCat(
        info.name, " was submitted ", skipped_ ? "after this worker skipped" : "twice in", " step ",
        step_, skipped_ ? "" : ": submit each tensor once, when its gradient is final"));
  }
  ready_[tensor] = true;
  gradients_[tensor] = gradient;
  for (uint32_t id = first_chunk_[tensor]; id < first_chunk_[tensor + 1]; ++id) {
    const protocol::Chunk& chunk = options_.layout.chunks[id];
    --shards_[chunk.shard].flights[chunk.bundle].chunks_missing;
  }
  return absl::OkStatus();
}

absl::Status Pipeline::SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions) {
  if (!status_.ok()) return status_;
  if (!open_) {
    return absl::FailedPreconditionError(absl::StrCat("a weight was set when step ", step_,
                                                      " was done: set it before the last "
                                                      "tensor of its bundle is submitted"));
  }
  if (shard >= shards_.size() || bundle >= shards_[shard].flights.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a weight was set for bundle ", bundle,
                                                   " of shard ", shard, ", which does not exist"));
  }
  shards_[shard].flights[bundle].weight = contributions;
  return absl::OkStatus();
}

absl::Status Pipeline::SkipStep(Effects* effects) {
  if (!status_.ok()) return status_;
  Check(open_, "a skip belongs to a step");
  if (skipped_ || std::find(ready_.begin(), ready_.end(), true) != ready_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", step_, " cannot be skipped: ",
                     skipped_ ? "it was skipped already" : "a tensor of it was submitted"));
  }
  skipped_ = true;
  bundles_to_encode_ = 0;
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    for (uint32_t bundle = 0; bundle < shards_[shard].flights.size(); ++bundle) {
      SetExchange(shard, bundle, /*skip=*/true, {});
    }
    SendMore(shard, effects);
  }
  return absl::OkStatus();
}

std::optional<EncodeTask> Pipeline::NextEncoding() {
  if (!open_ || skipped_ || encoding_ || !status_.ok()) return std::nullopt;
  // Shards take turns, so that all of them have work from the start.
  const ShardState* best = nullptr;
  for (const ShardState& state : shards_) {
    if (state.next_encoding == state.flights.size()) continue;
    if (state.flights[state.next_encoding].chunks_missing > 0) continue;
    if (best == nullptr || state.next_encoding < best->next_encoding) best = &state;
  }
  if (best == nullptr) return std::nullopt;
  encoding_ = true;
  EncodeTask task;
  task.step = step_;
  task.shard = static_cast<uint32_t>(best - shards_.data());
  task.bundle = best->next_encoding;
  task.last_of_step = bundles_to_encode_ == 1;
  task.chunks = options_.layout.bundles[task.shard][task.bundle].chunks;
  for (const uint32_t id : task.chunks) {
    const protocol::Chunk& chunk = options_.layout.chunks[id];
    task.gradients.push_back(gradients_[chunk.tensor].Part(chunk.offset, chunk.count));
  }
  task.published = best->flights[best->next_encoding].published;
  task.plan = plan_;
  task.nothing = best->flights[best->next_encoding].weight == 0;
  return task;
}

void Pipeline::Encoded(EncodedBundle encoded, Effects* effects) {
  Check(encoding_, "a task was taken before");
  encoding_ = false;
  if (!status_.ok()) return;
  if (!encoded.failure.ok()) return Fail(std::move(encoded.failure), effects);
  ShardState& state = shards_[encoded.shard];
  Check(encoded.step == step_ && encoded.bundle == state.next_encoding, "tasks come back as taken");
  state.flights[encoded.bundle].published.clear();
  ++state.next_encoding;
  --bundles_to_encode_;
  const bool refused = encoded.skipped && state.flights[encoded.bundle].weight > 0;
  if (refused) {
    const bool buffer = encoded.skipped_tensor >= trained_;
    if (!buffer) ++bundles_skipped_here_;
    std::string& first = buffer ? first_skipped_buffer_ : first_skipped_tensor_;
    if (first.empty()) first = options_.table[encoded.skipped_tensor].name;
  }
  SetExchange(encoded.shard, encoded.bundle, encoded.skipped, std::move(encoded.frames));
  SendMore(encoded.shard, effects);
  if (bundles_to_encode_ == 0 && !buffers_due_) SkipBuffers(effects);
}

void Pipeline::SetExchange(uint32_t shard, uint32_t bundle, bool skip,
                           std::vector<std::string> frames) {
  BundleState& flight = shards_[shard].flights[bundle];
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
  exchange->base_version = shards_[shard].versions[bundle];
  exchange->rate = rate_;
  exchange->weight = skip ? 1 : flight.weight;
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

Pipeline::BundleState& Pipeline::FlightToSend(ShardState* state, uint32_t bundle) const {
  BundleState& flight = state->flights[bundle];
  if (state->replay.step == 0) return flight;
  const bool is_open = state->replay.step == step_ && open_;
  return is_open && flight.phase != Phase::kResolved ? flight : state->replay.flights[bundle];
}

Pipeline::BundleState* Pipeline::FindFlight(ShardState* state, uint64_t step,
                                            uint32_t bundle) const {
  if (state->replay.step != 0 && state->replay.step == step &&
      state->replay.flights[bundle].phase != Phase::kResolved) {
    return &state->replay.flights[bundle];
  }
  if (step != step_ || !open_ || state->flights[bundle].phase == Phase::kResolved) return nullptr;
  return &state->flights[bundle];
}

bool Pipeline::Unresolved(const ShardState& state) const {
  if (state.replay.step != 0) return true;
  return open_ &&
         std::any_of(state.flights.begin(), state.flights.end(), [](const BundleState& flight) {
           return flight.phase != Phase::kGathering && flight.phase != Phase::kResolved;
         });
}

void Pipeline::SendMore(uint32_t shard, Effects* effects) {
  ShardState& state = shards_[shard];
  if (state.paused || state.replay.asking) return;
  if (!open_ && state.replay.step == 0) return;
  for (; state.next_send < state.flights.size(); ++state.next_send) {
    BundleState& flight = FlightToSend(&state, state.next_send);
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

void Pipeline::SendAgain(ShardState* state, uint32_t bundle, BundleState* flight) const {
  if (flight->phase == Phase::kSent) state->bytes_in_flight -= flight->bytes;
  flight->phase = Phase::kToSend;
  // If the flight is of a later step than the one being resent, the stream sends it later.
  if (&FlightToSend(state, bundle) == flight) state->next_send = std::min(state->next_send, bundle);
}

void Pipeline::StreamReset(uint32_t shard, Effects* effects) {
  if (!status_.ok()) return;
  ShardState& state = shards_[shard];
  for (std::vector<BundleState>* flights : {&state.flights, &state.replay.flights}) {
    for (uint32_t bundle = 0; bundle < flights->size(); ++bundle) {
      BundleState& flight = (*flights)[bundle];
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
  BundleState* const flight = FindFlight(&state, answer.step, answer.bundle);
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
  BundleState& flight = state.flights[answer.bundle];
  absl::Status valid = CheckResult(shard, flight, answer);
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
  flight.record = std::move(answer.record);
  flight.exact = answer.exact;
  flight.staleness = answer.staleness;
  flight.open_step = answer.open_step;
  flight.results = std::move(answer.results);
  state.versions[answer.bundle] = answer.version;
  for (const uint32_t chunk : options_.layout.bundles[shard][answer.bundle].chunks) {
    arrivals_.Add(options_.layout.chunks[chunk].tensor);
  }
  SendMore(shard, effects);
  if (--bundles_unresolved_ > 0) return;
  open_ = false;
  catching_up_ = catching_up_ && !WasInTime();
  effects->push_back(StepDone{step_});
}

// Returns true if every bundle was still open when this worker's contribution arrived. Every later
// step then waits for this worker.
bool Pipeline::WasInTime() const {
  return std::all_of(shards_.begin(), shards_.end(), [this](const ShardState& state) {
    return std::all_of(state.flights.begin(), state.flights.end(),
                       [this](const BundleState& flight) { return flight.open_step == step_; });
  });
}

std::optional<uint32_t> Pipeline::MissingTensor() const {
  if (!open_ || skipped_) return std::nullopt;
  const auto end = ready_.begin() + (buffers_due_ ? ready_.size() : trained_);
  const auto missing = std::find(ready_.begin(), end, false);
  if (missing == end) return std::nullopt;
  return static_cast<uint32_t>(missing - ready_.begin());
}

void Pipeline::Fail(absl::Status status, Effects* effects) {
  status_ = std::move(status);
  effects->push_back(PipelineFailed{status_});
}

}  // namespace sluice::worker
