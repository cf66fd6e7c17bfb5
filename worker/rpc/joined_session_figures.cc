// The parts of JoinedSession that report on it: figures and traces.
#include "worker/rpc/joined_session.h"

namespace sluice::worker {
namespace {

// Traces merge decoding calls that are closer together than this.
constexpr absl::Duration kOneDecoding = absl::Microseconds(100);

}  // namespace

void JoinedSession::Tested(double accuracy) {
  for (const ShardLink& link : links_) link.stream->Tested(accuracy);
}

TrafficCounters JoinedSession::traffic() const {
  MutexLock lock(&mutex_);
  TrafficCounters counters = counters_;
  for (const ShardLink& link : links_) {
    counters.bytes_up += link.stream->bytes_up();
    counters.bytes_down += link.stream->bytes_down();
  }
  return counters;
}

SessionFigures JoinedSession::figures() const {
  SessionFigures figures;
  figures.traffic = traffic();
  figures.dense_bytes = DenseBytes(figures.traffic);
  figures.stages = stages();
  MutexLock lock(&mutex_);
  figures.progress = progress_;
  figures.bytes_in_flight = pipeline_.bytes_in_flight();
  figures.skipped_bundles = skipped_bundles_;
  figures.seconds = step_clock_.seconds();
  figures.exchanges = exchanges_;
  figures.quality = quality_;
  return figures;
}

void JoinedSession::TimeExchange(const SendExchange* sent) {
  if (sent == nullptr) {
    if (exchange_began_.has_value()) {
      const absl::Time now = clock_.Now();
      exchanges_.Add(now - *exchange_began_);
      if (options_.trace != nullptr) {
        options_.trace->Overlapping("exchange", 0, *exchange_began_, now,
                                    {.step = pipeline_.step()});
      }
    }
    exchange_began_.reset();
  } else if (!exchange_began_.has_value() && sent->exchange->step > 0 && pipeline_.step_open() &&
             sent->exchange->step == pipeline_.step()) {
    exchange_began_ = clock_.Now();
  }
}

void JoinedSession::TraceStep(absl::Time wait_began, absl::Time ended) {
  EndDecoding();
  const TraceTags tags{.step = pipeline_.step()};
  options_.trace->Span("step", step_began_, ended, tags);
  options_.trace->Span("compute", step_began_, wait_began, tags);
  options_.trace->Span("wait", wait_began, ended, tags);
  step_began_ = ended;
}

void JoinedSession::EndDecoding() {
  if (decoding_ended_ == absl::Time()) return;
  options_.trace->Span("decode", decoding_began_, decoding_ended_);
  decoding_ended_ = absl::Time();
}

void JoinedSession::TraceDecoding(absl::Time began, absl::Time ended) {
  if (began - decoding_ended_ >= kOneDecoding) EndDecoding();
  if (decoding_ended_ == absl::Time()) decoding_began_ = began;
  decoding_ended_ = ended;
}

}  // namespace sluice::worker
