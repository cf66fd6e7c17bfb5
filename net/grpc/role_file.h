// SPDX-License-Identifier: Apache-2.0
// RoleFile: gives roles to the clients of a job's servers. Each line of the file gives one role:
//
//   # Comments and empty lines are allowed.
//   worker token 3f0c...           to clients that send this token
//   server name server.job.svc     to clients whose certificate has this name
//   observer anyone                to all clients, also to those without credentials
//
// A client has the roles of all lines that apply to it. Two lines with the same role let a token or
// a name change while the job runs.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "net/grpc/reread_file.h"
#include "net/grpc/role.h"

namespace sluice::net {

inline constexpr size_t kRoleLinesMax = 1024;
inline constexpr size_t kRoleFileBytesMax = size_t{1} << 20;

struct RoleLine {
  enum class Kind : uint8_t { kToken, kName, kAnyone };

  Role role = Role::kObserver;
  Kind kind = Kind::kToken;
  std::string text;  // The token or the name.

  friend bool operator==(const RoleLine&, const RoleLine&) = default;
};

// Returns the lines of a file's text. Errors are INVALID_ARGUMENT and name `path` and the line, but
// never contain a token.
absl::StatusOr<std::vector<RoleLine>> ParseRoles(absl::string_view text, absl::string_view path);

// The file is read at every use, which is once per call or stream. While the file cannot be read,
// its last content stays valid. Thread-safe.
class RoleFile {
 public:
  static absl::StatusOr<std::unique_ptr<RoleFile>> Open(std::string path, Logger logger);

  // Returns the roles of a client that sent `token` and has a certificate with `names`. An empty
  // token means that the client sent none. The call takes the same time for all wrong tokens of the
  // same length.
  Roles RolesOf(absl::string_view token, const std::vector<std::string>& names);

 private:
  RoleFile(std::string path, std::vector<RoleLine> lines, Logger logger);

  RereadFile<std::vector<RoleLine>> file_;
};

}  // namespace sluice::net
