// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_acceptor.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace sluice::server {
namespace {

constexpr int kAcceptedAtOnce = 64;
// Pause after a failed accept.
constexpr std::chrono::milliseconds kPause{100};
// Interval between checks for sockets that gRPC has closed, and the minimum interval when the table
// is full.
constexpr std::chrono::seconds kLookEvery{1};
constexpr std::chrono::milliseconds kLookAgain{20};
constexpr std::chrono::seconds kReportEvery{10};
// A client sends nothing large on a connection before it has received an answer there
// (docs/protocol.md). The limit is low because gRPC may use 250 bytes of memory for each byte of a
// PING.
constexpr uint64_t kStrangersBytesMax = 128 << 10;
constexpr std::chrono::milliseconds kWeighEvery{10};
// Maximum time that a stranger may occupy a taker while other connections wait.
constexpr std::chrono::milliseconds kTakingPatience{500};

int OpenReserve() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

void CloseIfOpen(int* fd) {
  if (*fd >= 0) ::close(*fd);
  *fd = -1;
}

uint64_t BytesReceived(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_received : 0;
}

// Returns whether `fd` is still the socket with this device and inode. gRPC may close the
// descriptor at any time, and another socket may then get the same number. The code calls
// fstatat(), because the thread sanitizer treats fstat() as a use of the descriptor.
bool IsOpenStill(int fd, uint64_t device, uint64_t inode) {
  struct stat file {};
  return ::fstatat(fd, "", &file, AT_EMPTY_PATH) == 0 && file.st_dev == device &&
         file.st_ino == inode;
}

// Sets the options that gRPC would set on a socket that it accepts.
void Prepare(int fd, std::chrono::milliseconds unheard) {
  const int yes = 1;
  const unsigned patience = static_cast<unsigned>(unheard.count());
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof(patience));
}

}  // namespace

ConnectionAcceptor::ConnectionAcceptor(std::vector<net::Listener> listeners,
                                       const ConnectionLimits& limits,
                                       std::chrono::milliseconds unheard, const Logger& logger)
    : logger_(logger),
      unheard_(unheard),
      port_(listeners.front().port),
      listeners_(std::move(listeners)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      reserve_(OpenReserve()),
      table_(limits) {
  Check(wake_ >= 0, "there is a descriptor for a gRPC port");
}

void ConnectionAcceptor::Start(std::vector<GiveAway> takers) {
  {
    MutexLock lock(&mutex_);
    takers_.resize(takers.size());
  }
  for (size_t i = 0; i < takers.size(); ++i) {
    givers_.emplace_back([this, i, take = std::move(takers[i])] { Give(i, take); });
  }
  thread_ = std::thread([this] { Run(); });
}

void ConnectionAcceptor::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    for (const Taker& taker : takers_) {
      const auto found = taker.id.has_value() ? sockets_.find(*taker.id) : sockets_.end();
      if (found != sockets_.end()) (void)::shutdown(found->second.own, SHUT_RDWR);
    }
    waits_.SignalAll();
  }
  if (wake_ >= 0) (void)::eventfd_write(wake_, 1);
  if (thread_.joinable()) thread_.join();
  for (std::thread& giver : givers_) giver.join();
  givers_.clear();
  net::CloseAll(&listeners_);
  CloseIfOpen(&wake_);
  CloseIfOpen(&reserve_);
  MutexLock lock(&mutex_);
  for (const Waiting& waiting : waiting_) ::close(waiting.fd);
  waiting_.clear();
  for (auto& [id, socket] : sockets_) {
    CloseIfOpen(&socket.own);
    table_.Remove(id);
  }
  sockets_.clear();
}

void ConnectionAcceptor::Give(size_t taker, const GiveAway& give_away) {
  while (const std::optional<Waiting> next = NextToGive(taker)) {
    give_away(next->fd);
    Given(taker);
  }
}

std::optional<ConnectionAcceptor::Waiting> ConnectionAcceptor::NextToGive(size_t taker) {
  MutexLock lock(&mutex_);
  for (;;) {
    while (waiting_.empty() && !stopping_) waits_.Wait(&mutex_);
    if (stopping_) return std::nullopt;
    const Waiting next = waiting_.front();
    waiting_.pop_front();
    if (!sockets_.contains(next.id)) {  // The connection has ended.
      ::close(next.fd);
      continue;
    }
    takers_[taker] = {.id = next.id, .since = Clock::now()};
    return next;
  }
}

void ConnectionAcceptor::Given(size_t taker) {
  MutexLock lock(&mutex_);
  const auto found = sockets_.find(*takers_[taker].id);
  if (found != sockets_.end() && table_.IsMember(found->first)) CloseIfOpen(&found->second.own);
  takers_[taker].id.reset();
}

size_t ConnectionAcceptor::strangers() const {
  MutexLock lock(&mutex_);
  return table_.strangers();
}

size_t ConnectionAcceptor::members() const {
  MutexLock lock(&mutex_);
  return table_.members();
}

uint64_t ConnectionAcceptor::refused_for_lack_of_descriptors() const {
  MutexLock lock(&mutex_);
  return counts_.without_descriptor;
}

void ConnectionAcceptor::Run() {
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
      if (Clock::now() >= look_at_) ForgetGone();
    }
    CloseLate();
    if (Clock::now() >= report_at_) Report();
    Wait();
  }
}

void ConnectionAcceptor::Wait() {
  const Clock::time_point now = Clock::now();
  const bool accepts = now >= accept_from_;
  Clock::time_point until = now + std::chrono::seconds(60);
  {
    MutexLock lock(&mutex_);
    until = std::min(until, table_.NextLate().value_or(until));
    if (!sockets_.empty()) until = std::min(until, look_at_);
    if (table_.strangers() > 0) until = std::min(until, now + kWeighEvery);
  }
  if (!accepts) until = std::min(until, accept_from_);
  std::vector<pollfd> polled = {{.fd = wake_, .events = POLLIN, .revents = 0}};
  for (const net::Listener& listener : listeners_) {
    polled.push_back({.fd = accepts ? listener.fd : -1, .events = POLLIN, .revents = 0});
  }
  const auto left = std::max(until - now, Clock::duration::zero());
  const int timeout = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
  if (::poll(polled.data(), polled.size(), timeout) <= 0) return;
  for (size_t i = 1; i < polled.size(); ++i) {
    if (polled[i].revents != 0) AcceptSome(polled[i].fd);
  }
}

void ConnectionAcceptor::AcceptSome(int listener) {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    const net::Accepted accepted = net::Accept(listener);
    if (accepted.fd >= 0) {
      Admit(accepted);
      continue;
    }
    if (net::LacksDescriptors(accepted.error) && RefuseForLackOfDescriptors(listener)) continue;
    if (accepted.error != 0) accept_from_ = Clock::now() + kPause;
    return;
  }
}

// Uses the reserved descriptor to accept and close the next connection in the queue. Otherwise that
// connection would keep waking poll(), and its client would keep waiting. Returns false if the
// queue is empty or if no descriptor is available.
bool ConnectionAcceptor::RefuseForLackOfDescriptors(int listener) {
  if (reserve_ < 0) reserve_ = OpenReserve();
  if (reserve_ < 0) return false;
  CloseIfOpen(&reserve_);
  const net::Accepted refused = net::Accept(listener);
  if (refused.fd >= 0) {
    MutexLock lock(&mutex_);
    ++counts_.without_descriptor;
    ::close(refused.fd);
  }
  reserve_ = OpenReserve();
  return refused.fd >= 0;
}

void ConnectionAcceptor::Admit(const net::Accepted& accepted) {
  Prepare(accepted.fd, unheard_);
  struct stat file {};
  Socket socket{.given = accepted.fd, .own = ::fcntl(accepted.fd, F_DUPFD_CLOEXEC, 0)};
  if (socket.own < 0 || ::fstat(accepted.fd, &file) != 0) {
    CloseIfOpen(&socket.own);
    ::close(accepted.fd);
    MutexLock lock(&mutex_);
    ++counts_.without_descriptor;
    return;
  }
  socket.device = file.st_dev;
  socket.inode = file.st_ino;
  {
    MutexLock lock(&mutex_);
    const bool looked = Clock::now() < look_at_ - kLookEvery + kLookAgain;
    if (table_.IsFullFor(accepted.peer) && !looked) ForgetGone();
    const ConnectionTable::Addition addition =
        table_.Add(accepted.peer, accepted.address, Clock::now());
    if (addition.displaced.has_value()) {
      ++counts_.displaced;
      End(*addition.displaced);
    }
    sockets_.emplace(addition.id, socket);
    waiting_.push_back({.id = addition.id, .fd = accepted.fd});
    waits_.Signal();
  }
}

void ConnectionAcceptor::Admit(const std::string& address) {
  MutexLock lock(&mutex_);
  std::vector<ConnectionTable::Id> refused = TryToAdmit(address);
  if (refused.empty()) return;
  ForgetGone();
  refused = TryToAdmit(address);
  for (const ConnectionTable::Id id : refused) {
    table_.Remove(id);
    End(id);
  }
  counts_.too_many_members += refused.size();
}

std::vector<ConnectionTable::Id> ConnectionAcceptor::TryToAdmit(const std::string& address) {
  ConnectionTable::Admission admission = table_.Admit(address);
  for (const ConnectionTable::Id id : admission.members) {
    const bool being_given = std::any_of(takers_.begin(), takers_.end(),
                                         [&](const Taker& taker) { return taker.id == id; });
    if (!being_given) CloseIfOpen(&sockets_.at(id).own);
  }
  return std::move(admission.refused);
}

void ConnectionAcceptor::CloseLate() {
  const Clock::time_point now = Clock::now();
  MutexLock lock(&mutex_);
  for (const ConnectionTable::Id id : table_.RemoveLate(now)) {
    ++counts_.late;
    End(id);
  }
  if (!waiting_.empty()) EndOneThatBlocks(now);
  if (now >= weigh_at_) EndThoseThatSendMuch(now);
}

void ConnectionAcceptor::EndThoseThatSendMuch(Clock::time_point now) {
  weigh_at_ = now + kWeighEvery;
  std::vector<ConnectionTable::Id> heavy;
  for (const ConnectionTable::Id id : table_.stranger_ids()) {
    if (BytesReceived(sockets_.at(id).own) > kStrangersBytesMax) heavy.push_back(id);
  }
  for (const ConnectionTable::Id id : heavy) {
    // Without this reset, gRPC would still read the bytes that have arrived.
    const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
    (void)::connect(sockets_.at(id).own, &none, sizeof(none));
    ++counts_.too_much;
    table_.Remove(id);
    End(id);
  }
}

// If all takers are busy, ends the stranger that has occupied a taker for the longest time. A
// stranger can block a taker by sending without pause.
void ConnectionAcceptor::EndOneThatBlocks(Clock::time_point now) {
  const Taker* longest = nullptr;
  for (const Taker& taker : takers_) {
    if (!taker.id.has_value()) return;
    const bool is_stranger = sockets_.contains(*taker.id) && !table_.IsMember(*taker.id);
    if (is_stranger && now - taker.since >= kTakingPatience &&
        (longest == nullptr || taker.since < longest->since)) {
      longest = &taker;
    }
  }
  if (longest == nullptr) return;
  ++counts_.late;
  table_.Remove(*longest->id);
  End(*longest->id);
}

// Ends a stranger's connection. gRPC notices this and closes its own descriptor.
void ConnectionAcceptor::End(ConnectionTable::Id id) {
  const auto found = sockets_.find(id);
  (void)::shutdown(found->second.own, SHUT_RDWR);
  Forget(id);
}

void ConnectionAcceptor::Forget(ConnectionTable::Id id) {
  const auto found = sockets_.find(id);
  CloseIfOpen(&found->second.own);
  sockets_.erase(found);
}

void ConnectionAcceptor::ForgetGone() {
  look_at_ = Clock::now() + kLookEvery;
  std::vector<ConnectionTable::Id> gone;
  for (const auto& [id, socket] : sockets_) {
    if (!IsOpenStill(socket.given, socket.device, socket.inode)) gone.push_back(id);
  }
  for (const ConnectionTable::Id id : gone) {
    table_.Remove(id);
    Forget(id);
  }
}

void ConnectionAcceptor::Report() {
  Counts counts;
  Counts before;
  {
    MutexLock lock(&mutex_);
    counts = counts_;
    before = std::exchange(reported_, counts_);
  }
  std::vector<std::string> parts;
  const auto add = [&](uint64_t Counts::*count, absl::string_view why) {
    const uint64_t more = counts.*count - before.*count;
    if (more > 0) parts.push_back(absl::StrCat(more, " ", why));
  };
  add(&Counts::late, "made no call that this job allows in their first seconds");
  add(&Counts::too_much, "sent more than 128 KiB before such a call");
  add(&Counts::displaced, "made way for newer ones");
  add(&Counts::too_many_members, "are more than the job needs");
  add(&Counts::without_descriptor, "found no file descriptor left (ulimit -n)");
  if (parts.empty()) return;
  report_at_ = Clock::now() + kReportEvery;
  const std::string text =
      absl::StrCat("connections to port ", port_, " were closed: ", absl::StrJoin(parts, "; "));
  if (counts.too_many_members > before.too_many_members ||
      counts.without_descriptor > before.without_descriptor) {
    logger_.Warning(text);
  } else {
    logger_.Info(text);
  }
}

}  // namespace sluice::server
