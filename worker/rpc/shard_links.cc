// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/shard_links.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/rpc/connection.h"

namespace sluice::worker {

ShardStreams MakeShardStreams(const RemoteSessionOptions& options, const Membership& membership,
                              ShardStream::Events* events, protocol::StageTimes* stages) {
  ShardStreams streams;
  for (uint32_t shard = 0; shard < membership.shards.size(); ++shard) {
    protocol::Sender sender = membership.sender;
    sender.server_incarnation = membership.shards[shard].server_incarnation;
    streams.push_back(std::make_unique<ShardStream>(shard, membership.shards[shard].address,
                                                    *options.transport, sender, events,
                                                    options.clock, stages, options.trace));
  }
  return streams;
}

ShardLinks::ShardLinks(const RemoteSessionOptions& options, const Membership& membership,
                       const ShardStreams& streams)
    : options_(options),
      streams_(streams),
      patience_(options.checkpoint.enabled() ? options.server.rejoin_timeout
                                             : options.server.connect_timeout) {
  const ShardLink::Options link{.patience = patience_,
                                .backoff_min = options.backoff_min,
                                .backoff_max = options.backoff_max};
  const absl::Time now = options.clock->Now();
  for (const ShardSeat& seat : membership.shards) {
    links_.emplace_back(link, now, seat.server_incarnation);
  }
}

void ShardLinks::Open() {
  for (uint32_t shard = 0; shard < size(); ++shard) streams_[shard]->Open(links_[shard].newest());
}

void ShardLinks::StreamUp(uint32_t shard) {
  if (links_[shard].StreamUp()) LogAnswer(shard);
}

ShardLinks::Answerer ShardLinks::Answered(uint32_t shard, uint64_t incarnation) {
  ShardLink& link = links_[shard];
  if (link.IsOutdated(incarnation)) {
    Reconnect(shard, streams_[shard]->address());
    return Answerer::kOutdated;
  }
  if (link.Answered()) LogAnswer(shard);
  return link.IsReplaced(incarnation) ? Answerer::kNewProcess : Answerer::kKnown;
}

void ShardLinks::LogAnswer(uint32_t shard) const {
  options_.logger.Info("shard ", shard, " at ", streams_[shard]->address(), " responds again");
}

bool ShardLinks::Follow(const protocol::ShardPlace& place) {
  if (place.shard >= size() || place.address.empty()) return false;
  if (!links_[place.shard].Follow(place.server_incarnation)) return false;
  options_.logger.Info("shard ", place.shard, " is served by another process now, at ",
                       place.address, "; connecting there");
  Reconnect(place.shard, place.address);
  return true;
}

void ShardLinks::Reconnect(uint32_t shard, const std::string& address) {
  streams_[shard]->GoTo(address);
  streams_[shard]->Cancel();  // Once the stream is down, its link opens the next one.
}

absl::Status ShardLinks::StreamDown(uint32_t shard, const grpc::Status& status, bool leaving) {
  if (!MayPassOnceLetIn(status)) {
    if (leaving) return absl::OkStatus();
    return ToStatus(
        status,
        absl::StrCat("shard ", shard, " at ", streams_[shard]->address(), " ended the stream"),
        *options_.transport);
  }
  const ShardLink::Loss loss =
      links_[shard].StreamDown(Reason(status, *options_.transport), leaving, options_.clock->Now());
  if (loss == ShardLink::Loss::kUnreachable && !leaving) return Unreachable(shard);
  if (loss == ShardLink::Loss::kRetryAndLog) {
    options_.logger.Warning("shard ", shard, " at ", streams_[shard]->address(), ": ",
                            links_[shard].trouble(), "; retrying for ",
                            absl::FormatDuration(patience_));
  } else {
    options_.logger.Debug("the stream to shard ", shard, " at ", streams_[shard]->address(),
                          " is down: ", links_[shard].trouble());
  }
  return absl::OkStatus();
}

ShardLinks::Served ShardLinks::Serve(uint32_t shard, bool leaving, absl::Time now) {
  const ShardLink::Due due = links_[shard].TakeDue(now);
  ShardStream& stream = *streams_[shard];
  if (due.reopen) {
    options_.logger.Debug("opens a stream to shard ", shard, " at ", stream.address());
    stream.Open(links_[shard].newest());
  }
  Served served{.reopened = due.reopen, .retry = due.retry, .status = absl::OkStatus()};
  if (!due.silent || leaving) return served;
  // A connected shard without requests has nothing to answer.
  if (!stream.Connected()) {
    served.status = Unreachable(shard);
  } else if (!stream.Begun()) {
    options_.logger.Warning("shard ", shard, " at ", stream.address(),
                            " is connected but has not begun this worker's stream for ",
                            absl::FormatDuration(patience_),
                            "; waiting: is it busy, or is it another build?");
  }
  return served;
}

absl::Time ShardLinks::NextDue() const {
  absl::Time next = absl::InfiniteFuture();
  for (const ShardLink& link : links_) next = std::min(next, link.NextDue());
  return next;
}

std::vector<uint64_t> ShardLinks::KnownProcesses() const {
  std::vector<uint64_t> known;
  for (const ShardLink& link : links_) known.push_back(link.newest());
  return known;
}

absl::Status ShardLinks::Unreachable(uint32_t shard) const {
  return LostServer(absl::UnavailableError(absl::StrCat(
                        "shard ", shard, " at ", streams_[shard]->address(),
                        " cannot be reached for ", absl::FormatDuration(patience_), " (",
                        links_[shard].trouble(), "): is sluice-server running there with --shard ",
                        shard, ", and may this machine connect to it?")),
                    options_.checkpoint.enabled());
}

absl::Duration ShardLinks::RoundTrip() const {
  absl::Duration longest;
  for (const auto& stream : streams_) {
    longest = std::max(longest, stream->RoundTrip().value_or(absl::InfiniteDuration()));
  }
  return longest;
}

}  // namespace sluice::worker
