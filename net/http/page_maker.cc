// SPDX-License-Identifier: Apache-2.0
#include "net/http/page_maker.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice::net {
namespace {

constexpr size_t kStackBytes = 1 << 20;

}  // namespace

HttpThread::HttpThread(std::function<void()> run) : run_(std::move(run)) {
  pthread_attr_t attributes;
  Check(pthread_attr_init(&attributes) == 0 &&
            pthread_attr_setstacksize(&attributes, kStackBytes) == 0 &&
            pthread_create(&thread_, &attributes, &HttpThread::Run, this) == 0,
        "a thread starts");
  (void)pthread_attr_destroy(&attributes);
}

HttpThread::~HttpThread() { (void)pthread_join(thread_, nullptr); }

void* HttpThread::Run(void* self) {
  static_cast<const HttpThread*>(self)->run_();
  return nullptr;
}

PageMaker::PageMaker(HttpPages pages, Done done)
    : pages_(std::move(pages)), done_(std::move(done)), thread_([this] { Run(); }) {}

PageMaker::~PageMaker() {
  MutexLock lock(&mutex_);
  over_ = true;
  changed_.SignalAll();
}

void PageMaker::Ask(uint64_t request, std::string path) {
  MutexLock lock(&mutex_);
  wishes_.push_back({request, std::move(path)});
  changed_.SignalAll();
}

void PageMaker::Forget(uint64_t request) {
  MutexLock lock(&mutex_);
  std::erase_if(wishes_, [&](const Wish& wish) { return wish.request == request; });
}

void PageMaker::Run() {
  for (;;) {
    Wish wish;
    {
      MutexLock lock(&mutex_);
      while (!over_ && wishes_.empty()) changed_.Wait(&mutex_);
      if (over_) return;
      wish = std::move(wishes_.front());
      wishes_.pop_front();
    }
    done_(wish.request, Make(wish.path));
  }
}

HttpAnswer PageMaker::Make(const std::string& path) const {
  try {
    return pages_(path);
  } catch (const std::exception& failure) {  // Libraries that pages use may throw.
    return {.status = 500, .body = absl::StrCat(failure.what(), "\n")};
  }
}

}  // namespace sluice::net
