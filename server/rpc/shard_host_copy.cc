// Lets other threads use ShardHost while its core is copied for a snapshot. The copy takes
// milliseconds per million elements.
#include <utility>

#include "server/rpc/shard_host.h"

namespace sluice::server {

// The core calls this function while the host calls the core with the lock held.
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

// Defers a change of the core if a copy is being made. Otherwise returns false, and the caller
// makes the change now. gRPC threads wait here only if the deferred bytes would exceed the ranks'
// windows, because heartbeats need these threads.
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

// Makes the deferred changes on the copying thread before it releases the lock. A change may start
// another copy; further changes are then deferred behind the remaining ones.
void ShardHost::DoPutOff() {
  while (!put_off_.empty()) {
    const std::function<void()> change = std::move(put_off_.front());
    put_off_.pop_front();
    change();
  }
  put_off_bytes_ = 0;
}

}  // namespace sluice::server
