// SPDX-License-Identifier: Apache-2.0
// Roster: the ranks of a job as its coordinator sees them. It knows the worker that holds each
// rank, the calls that wait for a rank, and the leases, and it decides which member is silent or
// lost. Each rank has one state; member.h has the table of its transitions. Pure; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "protocol/exchange.h"
#include "protocol/membership.h"
#include "protocol/snapshot.h"
#include "protocol/tensor_table.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/coordinator/coordinator_options.h"
#include "server/coordinator/loss_report.h"
#include "server/coordinator/member.h"

namespace sluice::server {

class Roster {
 public:
  using Effects = CoordinatorEffects;
  using Ranks = std::vector<uint32_t>;

  // `options` must outlive it.
  explicit Roster(const CoordinatorOptions& options);

  uint32_t size() const { return static_cast<uint32_t>(members_.size()); }
  const Member& operator[](uint32_t rank) const { return members_[rank]; }
  auto begin() const { return members_.begin(); }
  auto end() const { return members_.end(); }
  std::string Describe(uint32_t rank) const { return Describe(members_[rank].join); }
  std::string Describe(const protocol::WorkerJoin& join) const;

  // The tensors of the model, from the first worker that joined. Empty until then.
  const protocol::TensorTable& table() const { return table_; }

  // Terms.
  // Takes over the members of a term that an earlier coordinator began.
  void ContinueTerm(const protocol::RunRecord& record, absl::Time now);
  // True if a term can begin with the present workers. `waited`: the time since the last rollback;
  // unset before the first term.
  bool IsEnough(std::optional<absl::Duration> waited) const;
  // Returns the ranks or workers that a term still needs; empty if there are enough.
  std::string Missing() const;
  // Records that the term runs and begins after `restore_step`. Answer every waiting call next.
  void BeginTerm(uint64_t restore_step, absl::Time now);
  // Elastic: the ranks that the term began with.
  const Ranks& began_with() const { return began_with_; }
  // Frees all ranks except those whose Join waits, because their holders have not begun the term.
  void EndTerm();

  // Joins.
  // Returns why the worker cannot join a job with other tensors. `restore_step`: the step that the
  // term continues from.
  absl::Status CheckTable(const protocol::WorkerJoin& join, uint64_t restore_step) const;
  // The error for another worker that wants the rank of this one.
  absl::Status HeldBy(const protocol::WorkerJoin& holder, absl::string_view hint = "") const;
  // Gives a vacant rank to the worker.
  void Seat(JoinToken token, protocol::WorkerJoin join, absl::Time now);
  // Records that the holder of the rank sent Join again. The older call, if it waits, fails.
  void Repeat(uint32_t rank, JoinToken token, Effects* out);
  // Makes the newcomer wait until the holder of its rank, if any, is known to be lost or alive.
  void Await(JoinToken token, protocol::WorkerJoin join, absl::Time since, Effects* out);
  // Forgets a call whose caller has disconnected. Before the term is announced, this frees the
  // caller's rank. Returns whether it did.
  bool Cancel(JoinToken token, bool announced);
  // Lets the next worker bring other tensors if no rank is held.
  void ForgetUnusedTable();
  // Answers the waiting call. Keep the checkpoint that the grant names until the member has read
  // it.
  void Answer(uint32_t rank, protocol::JoinGrant grant, absl::Time now, Effects* out);
  // Returns the ranks whose holder waits for an answer.
  Ranks Waiting() const;
  // Answers all calls with an error because the job has ended.
  void RefuseAll(const absl::Status& why, Effects* out);

  // Newcomers.
  // Returns the ranks with a waiting newcomer whose holder, if any, may be replaced.
  Ranks Replaceable(absl::Time now) const;
  // States which newcomer replaces the holder of the rank.
  std::string ReplacedBy(uint32_t rank) const;
  // Takes the newcomer out of the queue.
  Successor TakeSuccessor(uint32_t rank);
  // Gives the rank to its newcomer, which replays the steps from `first_step` on.
  void Replace(uint32_t rank, uint64_t first_step, absl::Time now);
  // Elastic: gives the vacant rank to its newcomer in the middle of a term.
  void SeatLate(uint32_t rank, absl::Time now);
  // Elastic: removes the members. Their newcomers continue to wait. Returns the members' names.
  std::string Vacate(const Ranks& ranks);
  // Elastic: true if the job can continue with that many members fewer.
  bool CanSpare(size_t count) const;
  // Elastic: true if one of these gives the others their parameters in the first step.
  bool GivesParameters(const Ranks& ranks) const;
  uint64_t lost_workers() const { return lost_workers_; }
  double lost_residual_energy() const { return lost_residual_energy_; }

  // Reports. Check the sender before.
  // Fails with FAILED_PRECONDITION if the sender belongs to another run or does not hold its rank.
  absl::Status CheckSender(const protocol::Sender& sender) const;
  // Renews the lease, refuses a newcomer and notes a return. Returns false if the member makes no
  // progress while the job runs; then it does none of these.
  bool Report(const protocol::WorkerHeartbeat& heartbeat, bool is_running, absl::Time now,
              Effects* out);
  // Records the data that the member keeps and the files that it waits for.
  void ReportFiles(const protocol::WorkerHeartbeat& heartbeat);
  // Records that the member has saved a part of the checkpoint after this step.
  void SavedPart(uint32_t rank, uint64_t step);
  // Records a repeated Join of a member while the term runs.
  void Return(uint32_t rank, absl::Time now, Effects* out);
  void Leave(uint32_t rank) { Move(&members_[rank], MemberEvent::kLeft); }
  // Records that the member left before the end of an elastic job, or was evicted.
  void GiveUp(uint32_t rank, absl::string_view why);
  // Members that have finished are needed again. They repeat their Leave until the job ends.
  void NeedAll();
  void SetToldEnd(uint32_t rank, bool told) { members_[rank].told_end = told; }

  // Leases. Those of members whose Join waits do not expire, because they wait for our answer.
  void RenewWaiting(absl::Time now);
  void ShiftLeases(absl::Duration gap, absl::Time now);
  // Returns the ranks whose lease is over, also if they are lost already.
  Ranks Expired(absl::Time now) const;
  void AddLosses(const Ranks& ranks, LossReport* report) const;
  // Marks the members whose lease has just expired. Returns whether there are any.
  bool MarkLost(absl::Time now, LossReport* report);
  bool AnyLost() const;
  // True if the job has waited that long for some lost member.
  bool AnyLostFor(absl::Duration limit, absl::Time now) const;
  std::vector<std::string> NamesOfLost() const;
  // True if this coordinator heard from some rank within the last `silence`.
  bool AnyAlive(absl::Time now, absl::Duration silence) const;
  // True if all members that are not silent have reported after `time`.
  bool AllHeardAfter(absl::Time time, absl::Time now) const;

  // Questions about all ranks.
  uint32_t Present() const;
  Ranks PresentRanks() const;
  bool AllHaveLeft() const;
  bool AllPassed(uint64_t step) const;
  bool ParametersAreEqual() const;
  bool AnyToldEnd() const;
  // True if every worker that must hear of the end knows it. `absent_too`: also vacant ranks must.
  bool AllKnowEnd(bool absent_too) const;
  std::vector<uint64_t> Incarnations() const;
  std::vector<protocol::RunMember> Records() const;
  // Returns the steps of the checkpoints that members are still reading.
  std::vector<uint64_t> StepsInUse() const;
  // Converts a worker's progress to the shards' step count. Rounds down.
  uint64_t ExchangedStep(const protocol::MemberProgress& progress) const {
    const uint64_t step = progress.step - std::min(progress.step, options_.fragment_delay);
    const uint64_t fragments = options_.exchange.compression.layout.fragments;
    return step * fragments / options_.steps_per_exchange;
  }

 private:
  static void Move(Member* member, MemberEvent event);
  static void Vacate(Member* member);
  void Occupy(Member* member, JoinToken token, protocol::WorkerJoin join, absl::Time now);
  void SeatSuccessor(Member* member, absl::Time now);
  static void RefuseSuccessor(Member* member, const absl::Status& why, Effects* out);
  void NoteReturn(Member* member, Effects* out);
  bool LeaseIsOver(const Member& member, absl::Time now) const;
  bool IsSilent(const Member& member, absl::Time now) const;

  const CoordinatorOptions& options_;
  std::vector<Member> members_;  // By rank.
  protocol::TensorTable table_;
  uint32_t table_rank_ = 0;  // The rank that brought the table.
  uint32_t begin_with_;      // Number of workers that the term needs to begin.
  Ranks began_with_;
  uint64_t lost_workers_ = 0;        // Elastic: removed with their residuals.
  double lost_residual_energy_ = 0;  // Residual energy of the removed workers.
};

}  // namespace sluice::server
