// SPDX-License-Identifier: Apache-2.0
// The roles of a job's clients, and the table of the methods that each role may call. A client's
// token and the names in its certificate give it its roles (role_file.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/enum_names.h"
#include "base/required.h"

namespace sluice::net {

enum class Role : uint8_t {
  kObserver,       // Reads the status.
  kWorker,         // Trains. A relay is a worker of its parent job.
  kServer,         // Serves a shard.
  kFollower,       // Reads the parameters.
  kAdministrator,  // Commands the job.
};
constexpr auto NamesOf(Role) {
  return std::to_array<EnumName<Role>>({{Role::kObserver, "observer"},
                                        {Role::kWorker, "worker"},
                                        {Role::kServer, "server"},
                                        {Role::kFollower, "follower"},
                                        {Role::kAdministrator, "administrator"}});
}

// A set of roles.
class Roles {
 public:
  constexpr Roles() = default;
  constexpr Roles(std::initializer_list<Role> roles) {
    for (const Role role : roles) Add(role);
  }
  static constexpr Roles All() {
    Roles all;
    for (const auto& entry : NamesOf(Role{})) all.Add(entry.value);
    return all;
  }

  constexpr void Add(Role role) { bits_ |= 1U << static_cast<unsigned>(role); }
  constexpr void Add(Roles roles) { bits_ |= roles.bits_; }
  constexpr bool Has(Role role) const { return (bits_ >> static_cast<unsigned>(role) & 1U) != 0; }
  constexpr bool HasAnyOf(Roles roles) const { return (bits_ & roles.bits_) != 0; }
  constexpr bool empty() const { return bits_ == 0; }

  friend constexpr bool operator==(Roles, Roles) = default;

 private:
  unsigned bits_ = 0;
};

// Returns the names of the roles, such as "observer or administrator".
std::string ToString(Roles roles);

// The methods of Sluice's services.
enum class Method : uint8_t {
  kJoin,
  kHeartbeat,
  kLeave,
  kReportCheckpoint,
  kRequestCheckpoint,
  kGetStatus,
  kEvictRank,
  kChangeSettings,
  kEnter,
  kAttach,
  kExchange,
  kGetUsage,
  kPutPart,
  kGetPart,
  kDescribeWeights,
  kFollow,
  kUploadWeights,
};

struct MethodTraits {
  Required<Method> method;
  Required<absl::string_view> path;  // As gRPC names the method.
  Required<Roles> roles;             // A client with any of these roles may call the method.
};

inline constexpr MethodTraits kMethods[] = {
    {Method::kJoin, "/sluice.v1.Coordinator/Join", Roles{Role::kWorker}},
    {Method::kHeartbeat, "/sluice.v1.Coordinator/Heartbeat", Roles{Role::kWorker}},
    {Method::kLeave, "/sluice.v1.Coordinator/Leave", Roles{Role::kWorker}},
    {Method::kReportCheckpoint, "/sluice.v1.Coordinator/ReportCheckpoint", Roles{Role::kWorker}},
    {Method::kRequestCheckpoint, "/sluice.v1.Coordinator/RequestCheckpoint",
     Roles{Role::kServer, Role::kAdministrator}},
    {Method::kGetStatus, "/sluice.v1.Coordinator/GetStatus", Roles::All()},
    {Method::kEvictRank, "/sluice.v1.Coordinator/EvictRank", Roles{Role::kAdministrator}},
    {Method::kChangeSettings, "/sluice.v1.Coordinator/ChangeSettings", Roles{Role::kAdministrator}},
    {Method::kEnter, "/sluice.v1.ShardControl/Enter", Roles{Role::kServer}},
    {Method::kAttach, "/sluice.v1.ShardControl/Attach", Roles{Role::kServer}},
    {Method::kExchange, "/sluice.v1.ParameterShard/Exchange", Roles{Role::kWorker}},
    {Method::kGetUsage, "/sluice.v1.ParameterShard/GetUsage", Roles::All()},
    {Method::kPutPart, "/sluice.v1.CheckpointStore/PutPart", Roles{Role::kWorker}},
    {Method::kGetPart, "/sluice.v1.CheckpointStore/GetPart", Roles{Role::kWorker, Role::kServer}},
    {Method::kDescribeWeights, "/sluice.v1.Weights/Describe", Roles{Role::kFollower}},
    {Method::kFollow, "/sluice.v1.Weights/Follow", Roles{Role::kFollower}},
    {Method::kUploadWeights, "/sluice.v1.WeightsUpload/Upload", Roles{Role::kWorker}},
};

// The row of each method has the method's number as its index.
consteval bool MethodsAreInOrder() {
  for (size_t i = 0; i < std::size(kMethods); ++i) {
    if (static_cast<size_t>(kMethods[i].method.value()) != i) return false;
  }
  return true;
}
static_assert(MethodsAreInOrder());

constexpr const MethodTraits& TraitsOf(Method method) {
  return kMethods[static_cast<size_t>(method)];
}

// Returns the method with this path. No value means that it is not one of Sluice's methods.
std::optional<Method> FindMethod(absl::string_view path);

}  // namespace sluice::net
