// PageMaker: a thread that makes the answers to requests, one after the other, in their order.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "base/mutex.h"
#include "net/http/http_answer.h"

namespace sluice::net {

// A thread of 1 MiB of stack, whatever RLIMIT_STACK says, so that a limit of the system makes none
// that is too small. Joins in the end.
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

  // `pages` and `done` are called on the thread.
  PageMaker(HttpPages pages, Done done);
  // Waits for the page that is being made. The others that were asked for are forgotten.
  ~PageMaker();

  // The caller bounds how many requests wait.
  void Ask(uint64_t request, std::string path);
  // Makes no page for it if that has not begun.
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
  HttpThread thread_;  // The last: it uses the others.
};

}  // namespace sluice::net
