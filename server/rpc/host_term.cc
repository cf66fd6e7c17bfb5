// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/host_term.h"

#include "absl/strings/str_cat.h"

namespace sluice::server {
namespace {

constexpr uint32_t kNotStartedRetryMs = 100;

}  // namespace

absl::Status HostTerm::MayStart(const protocol::StartShard& start) const {
  if (job_uid_ != 0 && job_uid_ != start.job_uid) {
    return absl::FailedPreconditionError("this server already works for another run");
  }
  if (start.term < term_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job is in term ", term_,
                     " here; a coordinator that was replaced asks for term ", start.term));
  }
  if (start.term == term_ && start.coordinator_incarnation < coordinator_incarnation_) {
    return absl::FailedPreconditionError(
        absl::StrCat("term ", start.term, " is led by a later coordinator (incarnation ",
                     coordinator_incarnation_, ", not ", start.coordinator_incarnation,
                     "); end the earlier one"));
  }
  return absl::OkStatus();
}

void HostTerm::MoveTo(const protocol::StartShard& start) {
  term_ = start.term;
  coordinator_incarnation_ = start.coordinator_incarnation;
}

void HostTerm::Suspend(uint32_t term, absl::string_view reason) {
  term_ = term;
  suspended_ = std::string(reason);
}

void HostTerm::Withdraw(absl::string_view reason) {
  withdrawn_ = true;
  ended_ = std::string(reason);
}

protocol::ExchangeReply HostTerm::AnswerWithoutCore(
    const protocol::ExchangeRequest& exchange) const {
  protocol::ExchangeReply answer;
  answer.step = exchange.step;
  answer.bundle = exchange.bundle;
  if (!ended_.empty()) {
    answer.outcome = protocol::Outcome::kFenced;
    answer.message = ended_;
  } else if (exchange.sender.term < term_) {
    answer.outcome = protocol::Outcome::kFenced;
    answer.term = term_;
    answer.message = suspended_;
  } else {
    answer.outcome = protocol::Outcome::kBusy;
    answer.retry_after_ms = kNotStartedRetryMs;
  }
  return answer;
}

absl::Status HostTerm::Withdrawn() const {
  if (!withdrawn_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("this server is ending: ", ended_));
}

}  // namespace sluice::server
