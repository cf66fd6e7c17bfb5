// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/weights_messages.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/wire/common_messages.h"
#include "protocol/wire/tensor_table_message.h"

namespace sluice::protocol {
namespace {

using compress::ElementType;

constexpr struct {
  ElementType type;
  v1::DType message;
} kTypes[] = {{ElementType::kFloat32, v1::DTYPE_FLOAT32},
              {ElementType::kFloat16, v1::DTYPE_FLOAT16},
              {ElementType::kBfloat16, v1::DTYPE_BFLOAT16}};

}  // namespace

v1::DType TypeToProto(ElementType type) {
  for (const auto& entry : kTypes) {
    if (entry.type == type) return entry.message;
  }
  return v1::DTYPE_UNSPECIFIED;
}

std::optional<ElementType> TypeFromProto(v1::DType type) {
  for (const auto& entry : kTypes) {
    if (entry.message == type) return entry.type;
  }
  return std::nullopt;
}

void StateToProto(const follow::WeightsState& state, v1::WeightsState* message) {
  message->set_term(state.version.term);
  message->set_version(state.version.step);
  message->set_digest(state.digest.data(), state.digest.size());
}

absl::StatusOr<follow::WeightsState> StateFromProto(const v1::WeightsState& message) {
  follow::WeightsState state{.version = {.term = message.term(), .step = message.version()}};
  if (message.digest().size() != state.digest.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the follower's digest has ",
                                                   message.digest().size(), " bytes, not ",
                                                   state.digest.size()));
  }
  std::memcpy(state.digest.data(), message.digest().data(), state.digest.size());
  return state;
}

void DescriptionToProto(const WeightsDescription& description, v1::DescribeWeightsReply* message) {
  message->set_job(description.job);
  message->set_job_uid(description.job_uid);
  TableToProto(description.table, message->mutable_table());
  LayoutToProto(description.layout, message->mutable_layout());
  for (uint32_t i = 0; i < description.whole_rows.size(); ++i) {
    if (description.whole_rows[i]) message->add_whole_rows(i);
  }
  for (const std::string& address : description.addresses) message->add_addresses(address);
  for (const ElementType type : description.types) message->add_types(TypeToProto(type));
}

absl::StatusOr<WeightsDescription> DescriptionFromProto(const v1::DescribeWeightsReply& message) {
  absl::StatusOr<TensorTable> table = TableFromProto(message.table());
  if (!table.ok()) return table.status();
  WeightsDescription description{.job = Shortened(message.job()),
                                 .job_uid = message.job_uid(),
                                 .table = *std::move(table),
                                 .layout = LayoutFromProto(message.layout()),
                                 .whole_rows = {},
                                 .addresses = {},
                                 .types = {}};
  if (message.addresses_size() < 1 || message.addresses_size() > static_cast<int>(kMaxShards)) {
    return absl::InvalidArgumentError(absl::StrCat("the description names ",
                                                   message.addresses_size(), " shards; 1 to ",
                                                   kMaxShards, " are allowed"));
  }
  for (const std::string& address : message.addresses()) {
    description.addresses.push_back(Shortened(address));
  }
  if (message.whole_rows_size() > 0) description.whole_rows.resize(description.table.size());
  for (const uint32_t tensor : message.whole_rows()) {
    if (tensor >= description.table.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the description names tensor ", tensor, " of ", description.table.size()));
    }
    description.whole_rows[tensor] = true;
  }
  for (int i = 0; i < message.types_size(); ++i) {
    const std::optional<ElementType> type = TypeFromProto(message.types(i));
    if (type.has_value()) description.types.push_back(*type);  // A later version may offer more.
  }
  return description;
}

}  // namespace sluice::protocol
