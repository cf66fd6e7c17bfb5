// SPDX-License-Identifier: Apache-2.0
// ServerInventory: the checkpoint data of one server in a job with `checkpoint.store: shards`. A
// server has parts but no manifests. A manifest lists the parts that belong together.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace sluice::cli {

// Returns true if the folder has a name of the form `shard-N`, which servers use.
bool IsServerFolder(const std::string& path);

// Returns `dir` itself if it is a server's folder. Otherwise returns the servers' folders in `dir`,
// sorted.
std::vector<std::string> FindServerFolders(const std::string& dir);

// Lists the parts by step. With `verify`, also reads all states. Returns false if a state is
// damaged.
bool ShowServerParts(const std::string& folder, bool verify, std::ostream& out);

}  // namespace sluice::cli
