#include "server/rpc/convert.h"

#include <string>

namespace sluice::server {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

v1::ExchangeReply ReplyToProto(const protocol::ExchangeAnswer& answer,
                               uint64_t server_incarnation) {
  v1::ExchangeReply reply = ReplyWithoutResults(answer, server_incarnation);
  for (const std::string& result : answer.results) reply.add_results(result);
  return reply;
}

}  // namespace sluice::server
