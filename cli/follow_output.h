// SPDX-License-Identifier: Apache-2.0
// What `sluice follow` writes: the model as a safetensors file, and patches for readers of a
// folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compress/element_type.h"
#include "follow/tensor_layout.h"
#include "follow/weights_version.h"

namespace sluice::cli {

// One complete version of a model.
struct ModelVersion {
  follow::WeightsVersion version;
  compress::ElementType type = compress::ElementType::kBfloat16;
  const follow::TensorLayout* layout = nullptr;
  absl::Span<const std::byte> weights;
};

// Replaces the file at `path` by the model. Readers see the old file until the new one is complete.
// Its metadata has `sluice.version` and `sluice.term`. Errors name the file.
absl::Status WriteModel(const std::string& path, const ModelVersion& model);

// A folder with patches and anchors, each with a name that begins with its term and its version, so
// that names in order are versions in order. A reader begins with the newest anchor. The folder
// keeps the last two anchors and what follows them; older files are removed.
class PatchFolder {
 public:
  // Writes an anchor after `anchor_every` patches, and whenever a patch would have as many bytes as
  // an anchor.
  PatchFolder(std::string path, uint64_t anchor_every)
      : path_(std::move(path)), anchor_every_(anchor_every) {}

  // Creates the folder. Its files of earlier runs stay until they are older than two anchors.
  absl::Status Open();
  // Writes the file that leads from the last version to this one. Errors name the file.
  absl::Status Add(const ModelVersion& model);
  // The name of the last file that was written.
  const std::string& newest() const { return newest_; }

 private:
  absl::Status Write(const ModelVersion& model, bool anchor, absl::Span<const std::byte> bytes);
  absl::Status RemoveOld();

  const std::string path_;
  const uint64_t anchor_every_;
  uint64_t patches_ = 0;  // Since the last anchor.
  std::optional<follow::WeightsState> last_;
  follow::TensorLayout layout_;
  std::vector<std::byte> weights_;  // The last version.
  std::string newest_;
};

}  // namespace sluice::cli
