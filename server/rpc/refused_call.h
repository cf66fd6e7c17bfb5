// SPDX-License-Identifier: Apache-2.0
// Answers for calls that Transport::MayCall refuses.
#pragma once

#include <grpcpp/grpcpp.h>

#include "net/grpc/transport.h"

namespace sluice::server {

// Returns null if the caller may make this call.
inline grpc::ServerUnaryReactor* RefusalOf(grpc::CallbackServerContext* context,
                                           const net::Transport& transport, net::Method method) {
  const grpc::Status status = transport.MayCall(*context, method);
  if (status.ok()) return nullptr;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

// Refuses a streaming call. The object deletes itself.
template <typename In, typename Out>
class RefusedStream final : public grpc::ServerBidiReactor<In, Out> {
 public:
  explicit RefusedStream(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace sluice::server
