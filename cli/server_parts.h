// What one server of a job with `checkpoint.store: shards` has of its checkpoints: parts, without
// the manifests that say which of them belong together.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace sluice::cli {

// Called `shard-N`, as servers call theirs.
bool IsServerFolder(const std::string& path);

// `dir` itself, if it is a server's folder, else the servers' folders in it; sorted.
std::vector<std::string> FindServerFolders(const std::string& dir);

// Says what is there, step by step; with `verify`, reads all states. False if one is damaged.
bool ShowServerParts(const std::string& folder, bool verify, std::ostream& out);

}  // namespace sluice::cli
