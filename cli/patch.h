// SPDX-License-Identifier: Apache-2.0
// `sluice patch`: writes, checks and applies patches between versions of a model's weights
// (follow/patch.h). Models are safetensors files. Every function returns the exit code: 0, or 1
// with an error that names the file. Each file is read into memory as a whole.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace sluice::cli {

struct MakePatchCommand {
  std::string before;
  std::string after;
  std::string output;
  std::optional<uint64_t> base_version;  // One less than `version` if absent.
  uint64_t version = 1;
};
// Writes the patch from one model to another.
int MakePatch(const MakePatchCommand& command, std::ostream& out, std::ostream& err);

struct MakeAnchorCommand {
  std::string model;
  std::string output;
  uint64_t version = 1;
};
// Writes an anchor: the complete weights in the format of patches.
int MakeAnchor(const MakeAnchorCommand& command, std::ostream& out, std::ostream& err);

struct ApplyPatchesCommand {
  std::vector<std::string> files;  // A model or an anchor, and then patches in order.
  std::string output;
};
// Writes the resulting model. The file at `output` is replaced only when the new one is complete,
// durable and has the digest that the last patch announces.
int ApplyPatches(const ApplyPatchesCommand& command, std::ostream& out, std::ostream& err);

struct VerifyPatchesCommand {
  std::vector<std::string> patches;
  std::string model;  // Optional. If set, the patches are applied to it in memory.
};
// Checks all bytes of the patches, and that each one continues the one before it.
int VerifyPatches(const VerifyPatchesCommand& command, std::ostream& out, std::ostream& err);

struct DescribePatchesCommand {
  std::vector<std::string> patches;
  bool json = false;
};
int DescribePatches(const DescribePatchesCommand& command, std::ostream& out, std::ostream& err);

}  // namespace sluice::cli
