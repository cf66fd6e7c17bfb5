// The parts of JoinedSession that report on it.
#include "worker/rpc/joined_session.h"

namespace sluice::worker {

void JoinedSession::Report(const Progress& progress) {
  MutexLock lock(&mutex_);
  progress_ = progress;
  reported_ = last_progress_ = clock_.Now();
}

void JoinedSession::Tested(double accuracy) {
  for (const ShardLink& link : links_) link.stream->Tested(accuracy);
}

TrafficCounters JoinedSession::traffic() const {
  MutexLock lock(&mutex_);
  TrafficCounters counters = times_.counters();
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
  figures.seconds = times_.seconds();
  figures.exchanges = times_.exchanges();
  figures.quality = quality_;
  return figures;
}

}  // namespace sluice::worker
