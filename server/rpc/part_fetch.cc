// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/part_fetch.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/crc32c.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/wire/common_messages.h"
#include "sluice/v1/checkpoint_store.grpc.pb.h"

namespace sluice::server {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr double kBytesPerSecondMin = 1 << 20;

absl::StatusCode CodeOf(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::DATA_LOSS:
    case grpc::StatusCode::FAILED_PRECONDITION:
      return static_cast<absl::StatusCode>(status.error_code());
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNIMPLEMENTED:
    case grpc::StatusCode::INVALID_ARGUMENT:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

}  // namespace

absl::StatusOr<std::string> FetchPart(const net::Transport& transport,
                                      const protocol::FormerState& state, uint64_t job_uid) {
  const protocol::CheckpointPart& part = state.part;
  const std::string where = absl::StrCat(part.name, " of the server at ", state.address);
  v1::GetPartRequest request;
  request.mutable_sender()->set_job_uid(job_uid);
  protocol::PartToProto(part, request.mutable_part());
  request.set_for_server(true);
  grpc::ClientContext context;
  const absl::Duration limit =
      kPatience + absl::Seconds(static_cast<double>(part.bytes) / kBytesPerSecondMin);
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(limit));
  const auto stub = v1::CheckpointStore::NewStub(transport.Dial(state.address));
  const auto reader = stub->GetPart(&context, request);
  std::string bytes;
  v1::GetPartReply reply;
  bool fits = true;
  while (reader->Read(&reply)) {
    // Bytes beyond the listed size mean damage. Do not allocate memory for them.
    fits = fits && reply.content().size() <= part.bytes - bytes.size();
    if (fits) bytes.append(reply.content());
  }
  const grpc::Status status = reader->Finish();
  if (!status.ok()) {
    return absl::Status(CodeOf(status), absl::StrCat("reading ", where, ": ",
                                                     transport.Explain(status.error_message())));
  }
  if (!fits) return absl::DataLossError(absl::StrCat(where, " is larger than its manifest says"));
  const absl::Status whole = protocol::CheckPartFacts(where, bytes.size(), Crc32c(bytes), part);
  if (!whole.ok()) return whole;
  return bytes;
}

}  // namespace sluice::server
