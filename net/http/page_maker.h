// SPDX-License-Identifier: Apache-2.0
// PageMaker: a thread that makes the answers to requests, one at a time and in order.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "base/mutex.h"
#include "net/http/http_answer.h"

namespace sluice::net {

// A thread with a stack of 1 MiB regardless of RLIMIT_STACK, because a system limit could make the
// stack too small. The destructor joins the thread.
class HttpThread {
 public:
  explicit HttpThread(std::function<void()> run);
  ~HttpThread();
  HttpThread(const HttpThread&) = delete;
  HttpThread& operator=(const HttpThread&) = delete;

 private:
  static void* Run(void* self);

  const std::function<void()> run_;
  pthread_t thread_;
};

class PageMaker {
 public:
  using Done = std::function<void(uint64_t request, HttpAnswer answer)>;

  // The maker's thread calls `pages` and `done`.
  PageMaker(HttpPages pages, Done done);
  // Waits for the page that is being made, and drops the other requests.
  ~PageMaker();

  // Queues a request. The caller limits the number of queued requests.
  void Ask(uint64_t request, std::string path);
  // Drops the request if work on its page has not started.
  void Forget(uint64_t request);

 private:
  struct Wish {
    uint64_t request;
    std::string path;
  };

  void Run();
  HttpAnswer Make(const std::string& path) const;

  const HttpPages pages_;
  const Done done_;
  Mutex mutex_;
  CondVar changed_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Wish> wishes_ ABSL_GUARDED_BY(mutex_);
  HttpThread thread_;  // This is the last member, because the thread uses the others.
};

}  // namespace sluice::net
