// SPDX-License-Identifier: Apache-2.0
// PacedTunnel: one connection through a LinkPacer. It consists of two pipes with bounded buffers,
// and two buckets limit each pipe.
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

// Does not block. Only the pacer's thread uses this class. Owns both sockets.
class PacedTunnel {
 public:
  // Size of the socket buffers. With this size, the queues before and after a slow link are short,
  // like those of a switch. Otherwise the kernel would buffer megabytes.
  static constexpr int kSocketBuffer = 256 << 10;

  // Returns the link of the process that listens on `port`, or nullptr if no process of this run
  // listens there.
  using FindLink = std::function<PacedLink*(uint16_t port)>;

  // `client` is an accepted connection. It has not named its destination yet.
  PacedTunnel(int client, PacedLink* client_link, FindLink find_link)
      : find_link_(std::move(find_link)), client_(client), client_link_(client_link) {}
  ~PacedTunnel();
  PacedTunnel(const PacedTunnel&) = delete;
  PacedTunnel& operator=(const PacedTunnel&) = delete;

  int client_fd() const { return client_; }
  int server_fd() const { return server_; }  // -1 until the connection to the server is opened.
  // Events to request from poll(2). They exclude POLLOUT while the bytes to send wait for tokens.
  short ClientEvents() const;
  short ServerEvents() const;

  // Moves at most one quantum in each direction. Call this after the buckets were refilled. Returns
  // false if nothing moved.
  bool Advance();
  // True if the connection has ended, normally or not, and the tunnel can be destroyed.
  bool done() const { return done_; }
  // Returns the time until the next quantum may move. Infinite if no pipe waits for tokens.
  absl::Duration TimeUntilTokens() const;

 private:
  static constexpr size_t kBufferMax = 64 << 10;
  static constexpr size_t kQuantum = 16 << 10;

  // Bytes in transit in one direction.
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
  Pipe up_;  // Client to server. At first, it receives the head of the request.
  Pipe down_;
};

}  // namespace sluice::cli
