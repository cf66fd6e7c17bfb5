// SPDX-License-Identifier: Apache-2.0
// SimulatedWorker: a worker's real pipeline between a simulated training loop and encoder. One
// thread computes and applies results; another encodes one bundle at a time. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "planning/simulation/step_plan.h"
#include "planning/simulation/world.h"
#include "worker/core/pipeline.h"
#include "worker/core/send_lead.h"

namespace sluice::planning {

// What all workers of a job have in common.
struct WorkerPlan {
  ComputeSpec compute{};
  StragglerSpec stragglers{};
  uint64_t seed = 0;
  uint64_t steps = 0;                             // The last exchange.
  std::vector<std::vector<BundlePlace>> order{};  // By fragment.
};

class SimulatedWorker {
 public:
  // All arguments must outlive the worker.
  SimulatedWorker(uint32_t rank, const WorkerPlan* plan, const World* world, MailRoom* mail);

  // Begins at `first_step`. A newcomer joins a job that is ahead of it.
  void Begin(uint64_t incarnation, uint32_t generation, uint64_t first_step, bool is_newcomer);
  // Handles the events of a worker that have its present life.
  void Handle(const Event& event);
  // Takes an answer that has arrived.
  void Receive(Mail mail);
  // The worker stops. Its events and messages are kept until Resume, as if it were paused.
  void Pause() { paused_ = true; }
  void Resume();
  // The worker loses everything, and its events and messages.
  void Die();

  uint32_t life() const { return life_; }
  bool alive() const { return pipeline_ != nullptr; }
  bool paused() const { return paused_; }
  bool finished() const { return finished_; }
  uint64_t step() const { return pipeline_ == nullptr ? 0 : pipeline_->step(); }

 private:
  using Effects = worker::PipelineEffects;

  void BeginStep();
  void BeginParameters();
  void Compute();
  void BundlesReady(size_t end);
  void Submit(const BundlePlace& place);
  void EncodeNext();
  void Encoded();
  void Carry(const Effects& effects);
  void Send(const worker::SendExchange& send);
  void Adopt();
  void Applied();
  double LeadShare() const;
  Event Mine(EventKind kind, uint32_t what = 0) const {
    return {.kind = kind, .who = rank_, .what = what, .life = life_};
  }
  const std::vector<BundlePlace>& order() const;

  const uint32_t rank_;
  const WorkerPlan& plan_;
  const World& world_;
  MailRoom* const mail_;
  uint32_t life_ = 0;
  std::unique_ptr<worker::Pipeline> pipeline_;
  worker::SendLead lead_;
  bool paused_ = false;
  bool finished_ = false;
  std::vector<Event> kept_events_;  // While paused.
  std::vector<Mail> kept_mail_;
  // The next members belong to the open step.
  ExchangeTimes times_{};
  std::optional<Nanos> exchange_began_;
  size_t submitted_ = 0;  // Places in order().
  bool computed_ = false;
  bool has_results_ = false;
  Nanos apply_left_ = 0;  // Work on results that arrived before the end of computing.
  Nanos applied_at_ = 0;
  uint64_t behind_ = 0;  // Steps to skip, for a newcomer.
  worker::EncodedBundle task_{};
  bool encodes_ = false;
};

}  // namespace sluice::planning
