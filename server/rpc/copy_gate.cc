#include "server/rpc/copy_gate.h"

#include <utility>

namespace sluice::server {

void CopyGate::Run(Mutex* mutex, absl::FunctionRef<void()> copy) {
  copying_ = true;
  mutex->Unlock();
  copy();
  mutex->Lock();
  copying_ = false;
  copied_.SignalAll();
}

void CopyGate::Await(Mutex* mutex) {
  while (copying_) copied_.Wait(mutex);
}

bool CopyGate::PutOff(Mutex* mutex, uint64_t bytes, std::function<void()>* change) {
  while (copying_) {
    if (bytes == 0 || put_off_bytes_ + bytes <= bytes_max_) {
      put_off_bytes_ += bytes;
      put_off_.push_back(std::move(*change));
      return true;
    }
    copied_.Wait(mutex);
  }
  return false;
}

void CopyGate::DoPutOff() {
  while (!put_off_.empty()) {
    const std::function<void()> change = std::move(put_off_.front());
    put_off_.pop_front();
    change();
  }
  put_off_bytes_ = 0;
}

}  // namespace sluice::server
