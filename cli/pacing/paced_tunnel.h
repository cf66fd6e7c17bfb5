// PacedTunnel: one proxied connection of a LinkPacer: two pipes with bounded buffers, each metered
// by two buckets.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/pacing/token_bucket.h"

namespace sluice::cli {

// The two directions of one process's link.
struct PacedLink {
  TokenBucket out;
  TokenBucket in;
};

// Non-blocking; used by the pacer's one thread. Owns both sockets.
class PacedTunnel {
 public:
  // Of its sockets. Queues before and behind a slow link are short, as a switch's are; else
  // megabytes would hide in the kernel.
  static constexpr int kSocketBuffer = 256 << 10;

  // The link of the process that listens on `port`; nullptr: nobody of this run does.
  using FindLink = std::function<PacedLink*(uint16_t port)>;

  // `client` is an accepted connection that has not said yet where it wants to go.
  PacedTunnel(int client, PacedLink* client_link, FindLink find_link)
      : find_link_(std::move(find_link)), client_(client), client_link_(client_link) {}
  ~PacedTunnel();
  PacedTunnel(const PacedTunnel&) = delete;
  PacedTunnel& operator=(const PacedTunnel&) = delete;

  int client_fd() const { return client_; }
  int server_fd() const { return server_; }  // -1 until it is dialled.
  // What to poll for, as poll(2) events. 0 for a pipe that waits for tokens.
  short ClientEvents() const;
  short ServerEvents() const;

  // Moves what can be moved, at most one quantum in each direction, with refilled buckets. False:
  // nothing moved.
  bool Advance();
  // Over, in order or not: to be destroyed.
  bool done() const { return done_; }
  // How long until the next quantum may go; infinite if no pipe waits for tokens.
  absl::Duration TimeUntilTokens() const;

 private:
  static constexpr size_t kBufferMax = 64 << 10;
  static constexpr size_t kQuantum = 16 << 10;

  // Bytes on their way in one direction.
  struct Pipe {
    std::string bytes;
    bool source_ended = false;
    bool end_passed_on = false;
  };

  bool ReadRequest();
  bool Dial(uint16_t port);
  void Refuse(absl::string_view answer);
  bool FinishDialling();
  bool Read(int fd, Pipe* pipe);
  bool Write(int fd, Pipe* pipe, TokenBucket* first, TokenBucket* second);
  short Events(const Pipe& from_here, const Pipe& to_here, const TokenBucket& first,
               const TokenBucket& second) const;

  const FindLink find_link_;
  const int client_;
  PacedLink* const client_link_;
  int server_ = -1;
  PacedLink* server_link_ = nullptr;
  bool dialling_ = false;
  bool connected_ = false;
  bool done_ = false;
  Pipe up_;  // Client to server; the request's head until connected.
  Pipe down_;
};

}  // namespace sluice::cli
