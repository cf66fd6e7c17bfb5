// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/session_times.h"

namespace sluice::worker {
namespace {

// Traces merge decoding calls that are closer together than this.
constexpr absl::Duration kOneDecoding = absl::Microseconds(100);

}  // namespace

void SessionTimes::StepBegan(absl::Time now) {
  if (step_began_ == absl::Time()) step_began_ = now;
}

void SessionTimes::Encoded(absl::Time began, absl::Time ended) {
  counters_.encode_seconds += absl::ToDoubleSeconds(ended - began);
  clock_.Encoded(began, ended);
}

void SessionTimes::ExchangeBegan(absl::Time now) {
  if (!exchange_began_.has_value()) exchange_began_ = now;
}

void SessionTimes::ExchangeEnded(uint64_t step, absl::Time now) {
  if (!exchange_began_.has_value()) return;
  exchanges_.Add(now - *exchange_began_);
  lead_.ExchangeTook(now - *exchange_began_);
  if (trace_ != nullptr) {
    trace_->Overlapping("exchange", 0, *exchange_began_, now, {.step = step});
  }
  exchange_began_.reset();
}

void SessionTimes::Applied(absl::Time began, absl::Time ended) {
  counters_.decode_seconds += absl::ToDoubleSeconds(ended - began);
  clock_.Decoded(ended - began);
  if (trace_ == nullptr) return;
  if (began - decoding_ended_ >= kOneDecoding) EndDecoding();
  if (decoding_ended_ == absl::Time()) decoding_began_ = began;
  decoding_ended_ = ended;
}

void SessionTimes::WaitedForTensors(absl::Time began, absl::Time ended, bool encoding) {
  counters_.exposed_seconds += absl::ToDoubleSeconds(ended - began);
  clock_.WaitedForTensors(began, ended, encoding);
}

std::optional<protocol::LinkReport> SessionTimes::Waited(uint64_t step, absl::Time began,
                                                         absl::Time ended) {
  if (trace_ != nullptr) {
    EndDecoding();
    const TraceTags tags{.step = step};
    trace_->Span("step", step_began_, ended, tags);
    trace_->Span("compute", step_began_, began, tags);
    trace_->Span("wait", began, ended, tags);
    step_began_ = ended;
  }
  if (step == 0) return std::nullopt;
  ++counters_.steps;
  counters_.exposed_seconds += absl::ToDoubleSeconds(ended - began);
  const StepSeconds before = clock_.seconds();
  clock_.Waited(began, ended);
  const StepSeconds& now = clock_.seconds();
  return protocol::LinkReport{
      .step = step,
      .compute_s = now.compute - before.compute,
      .encode_s = now.encode_hidden_too - before.encode_hidden_too,
      .apply_s = now.decode - before.decode,
      .exposed_s = now.encode - before.encode + now.exchange - before.exchange};
}

void SessionTimes::EndDecoding() {
  if (decoding_ended_ == absl::Time()) return;
  trace_->Span("decode", decoding_began_, decoding_ended_);
  decoding_ended_ = absl::Time();
}

}  // namespace sluice::worker
