// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/role_file.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "net/grpc/small_file.h"
#include "net/grpc/token_file.h"

namespace sluice::net {
namespace {

constexpr char kRoleFlag[] = "--role-file";

absl::StatusOr<std::vector<RoleLine>> ReadRoles(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kRoleFlag, kRoleFileBytesMax);
  if (!text.ok()) return text.status();
  return ParseRoles(*text, path);
}

// Returns the problem of the words of a line, or an empty string. The problem never contains a
// token, which may be anywhere in a line of the wrong form.
std::string ProblemOf(const std::vector<absl::string_view>& words, RoleLine* line) {
  const std::optional<Role> role = FindByName<Role>(words[0]);
  if (!role.has_value()) {
    return absl::StrCat("begins with an unknown role; the roles are ",
                        absl::StrJoin(AllNames<Role>(), ", "));
  }
  line->role = *role;
  const absl::string_view kind = words.size() > 1 ? words[1] : "";
  if (kind == "anyone" && words.size() == 2) {
    line->kind = RoleLine::Kind::kAnyone;
    return "";
  }
  if ((kind != "token" && kind != "name") || words.size() != 3) {
    return "has another form than `ROLE token TOKEN`, `ROLE name NAME` or `ROLE anyone`";
  }
  line->kind = kind == "token" ? RoleLine::Kind::kToken : RoleLine::Kind::kName;
  line->text = std::string(words[2]);
  return kind == "token" ? TokenProblem(words[2]) : "";
}

}  // namespace

absl::StatusOr<std::vector<RoleLine>> ParseRoles(absl::string_view text, absl::string_view path) {
  std::vector<RoleLine> lines;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    RoleLine parsed;
    std::string problem =
        ProblemOf(absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty()), &parsed);
    if (problem.empty() && lines.size() == kRoleLinesMax) {
      problem = absl::StrCat("is one too many: a file has at most ", kRoleLinesMax, " lines");
    }
    if (!problem.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(kRoleFlag, ": line ", number, " of ", path, " ", problem));
    }
    lines.push_back(std::move(parsed));
  }
  if (!lines.empty()) return lines;
  return absl::InvalidArgumentError(
      absl::StrCat(kRoleFlag, ": ", path, " gives no role; a line is `ROLE token TOKEN`"));
}

RoleFile::RoleFile(std::string path, std::vector<RoleLine> lines, Logger logger)
    : file_(std::move(path), &ReadRoles, std::move(lines), std::move(logger)) {}

absl::StatusOr<std::unique_ptr<RoleFile>> RoleFile::Open(std::string path, Logger logger) {
  absl::StatusOr<std::vector<RoleLine>> lines = ReadRoles(path);
  if (!lines.ok()) return lines.status();
  return std::unique_ptr<RoleFile>(
      new RoleFile(std::move(path), *std::move(lines), std::move(logger)));
}

Roles RoleFile::RolesOf(absl::string_view token, const std::vector<std::string>& names) {
  Roles roles;
  for (const RoleLine& line : file_.Read()) {
    const bool same_token = IsSameToken(line.text, token);
    const bool applies = line.kind == RoleLine::Kind::kAnyone ||
                         (line.kind == RoleLine::Kind::kToken && same_token) ||
                         (line.kind == RoleLine::Kind::kName &&
                          std::find(names.begin(), names.end(), line.text) != names.end());
    if (applies) roles.Add(line.role);
  }
  return roles;
}

}  // namespace sluice::net
