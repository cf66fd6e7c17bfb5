// How ShardHost lets others in while its core is copied for a snapshot, which takes milliseconds
// for every million of elements.
#include <utility>

#include "server/rpc/shard_host.h"

namespace sluice::server {

// Called by the core, in a call that the host made with its lock.
void ShardHost::RunCopy(absl::FunctionRef<void()> copy) {
  copying_ = true;
  mutex_.Unlock();
  if (options_.before_copy) options_.before_copy();
  copy();
  mutex_.Lock();
  copying_ = false;
  copied_.SignalAll();
  tick_sooner_.SignalAll();
}

void ShardHost::AwaitCopied() const {
  while (copying_) copied_.Wait(&mutex_);
}

// Takes over a change of the core that holds so many bytes, if a copy is being made. False: it is
// to be made now. Threads of gRPC do not wait here, since heartbeats of workers need them, but for
// one that brings more than the ranks' windows hold.
bool ShardHost::PutOff(uint64_t bytes, std::function<void()>* change) {
  while (copying_) {
    const ShardOptions& shard = shard_->options();
    const uint64_t bytes_max = shard.window_bytes * shard.incarnations.size();
    if (bytes == 0 || put_off_bytes_ + bytes <= bytes_max) {
      put_off_bytes_ += bytes;
      put_off_.push_back(std::move(*change));
      return true;
    }
    copied_.Wait(&mutex_);
  }
  return false;
}

// By the thread that has copied, before it lets go of the lock. One of these may copy again, and
// others may then be put off behind them.
void ShardHost::DoPutOff() {
  while (!put_off_.empty()) {
    const std::function<void()> change = std::move(put_off_.front());
    put_off_.pop_front();
    change();
  }
  put_off_bytes_ = 0;
}

}  // namespace sluice::server
