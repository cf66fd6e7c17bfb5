// SPDX-License-Identifier: Apache-2.0
#include "cli/patch.h"

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/text.h"
#include "follow/patch.h"
#include "follow/safetensors.h"
#include "protocol/checkpoint/durable_file.h"

namespace sluice::cli {
namespace {

using follow::Patch;
using follow::PatchHeader;

// Larger files are refused before they are read.
constexpr uint64_t kFileBytesMax = uint64_t{1} << 40;

absl::Span<const std::byte> BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

absl::string_view TextOf(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::Status InFile(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// A model in memory: the bytes of its file.
struct Model {
  std::string path;
  std::string file;
  follow::SafetensorsModel facts;
  follow::Digest digest{};

  absl::Span<const std::byte> weights() const { return BytesOf(file).subspan(facts.weights_at); }
  absl::Span<std::byte> mutable_weights() {
    return absl::MakeSpan(reinterpret_cast<std::byte*>(file.data()), file.size())
        .subspan(facts.weights_at);
  }
};

// A patch in memory. `patch` refers to `file`, so neither is moved.
struct LoadedPatch {
  std::string file;
  absl::StatusOr<Patch> patch = absl::UnknownError("not loaded");
};

absl::StatusOr<Model> TakeModel(const std::string& path, std::string file) {
  absl::StatusOr<follow::SafetensorsModel> facts = follow::ParseSafetensors(BytesOf(file));
  if (!facts.ok()) return InFile(path, facts.status());
  Model model{.path = path, .file = std::move(file), .facts = *std::move(facts)};
  model.digest = follow::WeightsDigest(model.facts.type, model.weights());
  return model;
}

absl::StatusOr<Model> LoadModel(const std::string& path) {
  absl::StatusOr<std::string> file = protocol::ReadWholeFile(path, kFileBytesMax);
  if (!file.ok()) return file.status();
  return TakeModel(path, *std::move(file));
}

absl::Status LoadPatch(const std::string& path, LoadedPatch* loaded) {
  absl::StatusOr<std::string> file = protocol::ReadWholeFile(path, kFileBytesMax);
  if (!file.ok()) return file.status();
  loaded->file = *std::move(file);
  loaded->patch = Patch::Parse(BytesOf(loaded->file));
  return loaded->patch.ok() ? absl::OkStatus() : InFile(path, loaded->patch.status());
}

// Checks that a patch is for the tensors of `model`, and applies it.
absl::Status ApplyTo(const std::string& path, const Patch& patch, Model* model) {
  const PatchHeader& header = patch.header();
  if (header.type != model->facts.type) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": the patch is for weights of type ", follow::SafetensorsTypeName(header.type),
        ", but ", model->path, " has ", follow::SafetensorsTypeName(model->facts.type)));
  }
  if (header.layout != follow::LayoutDigest(model->facts.layout)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": the patch is for other tensors than those of ", model->path,
                     ": names, shapes and order must be equal"));
  }
  if (absl::Status done = patch.Apply(model->digest, model->mutable_weights()); !done.ok()) {
    return InFile(path, done);
  }
  model->digest = header.result;
  return absl::OkStatus();
}

// Returns a model with the tensors of an anchor. Its weights are zeros.
Model ModelOf(const std::string& path, const Patch& anchor) {
  const compress::ElementType type = anchor.header().type;
  Model model;
  model.path = path;
  model.file = follow::FormatSafetensorsHeader(anchor.layout(), type);
  model.facts = {.type = type, .layout = anchor.layout(), .weights_at = model.file.size()};
  model.file.resize(model.file.size() + anchor.header().elements * compress::BytesOf(type));
  return model;
}

// Loads a model, or makes one from an anchor.
absl::StatusOr<Model> LoadStart(const std::string& path) {
  absl::StatusOr<std::string> file = protocol::ReadWholeFile(path, kFileBytesMax);
  if (!file.ok()) return file.status();
  if (!follow::LooksLikePatch(BytesOf(*file))) return TakeModel(path, *std::move(file));
  const absl::StatusOr<Patch> anchor = Patch::Parse(BytesOf(*file));
  if (!anchor.ok()) return InFile(path, anchor.status());
  if (!anchor->header().anchor) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": the first file is a patch, which needs a model: name a model or an anchor first"));
  }
  Model model = ModelOf(path, *anchor);
  if (absl::Status done = ApplyTo(path, *anchor, &model); !done.ok()) return done;
  return model;
}

absl::Status Write(const std::string& path, absl::string_view bytes) {
  return protocol::WriteDurably(path, bytes).status();
}

std::string Amounts(const Patch& patch, size_t bytes) {
  if (patch.header().anchor) {
    return absl::StrCat(patch.header().elements, " weights, ", bytes, " bytes");
  }
  const double changed = static_cast<double>(patch.changed());
  const double elements = static_cast<double>(patch.header().elements);
  std::string text =
      absl::StrFormat("%d of %d weights changed (%.3g %%), %d bytes", patch.changed(),
                      patch.header().elements, elements > 0 ? 100 * changed / elements : 0, bytes);
  if (patch.changed() > 0) {
    absl::StrAppendFormat(&text, " (%.3g per changed weight)",
                          static_cast<double>(bytes) / changed);
  }
  return text;
}

std::string Versions(const PatchHeader& header) {
  if (header.anchor) return absl::StrCat("anchor of version ", header.version);
  return absl::StrCat("patch from version ", header.base_version, " to ", header.version);
}

absl::Status WriteResult(const std::string& path,
                         const absl::StatusOr<std::vector<std::byte>>& bytes, std::ostream& out) {
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<Patch> patch = Patch::Parse(*bytes);
  if (!patch.ok()) return InFile(path, patch.status());
  if (absl::Status written = Write(path, TextOf(*bytes)); !written.ok()) return written;
  out << EscapeControls(path) << ": " << Versions(patch->header()) << ", "
      << Amounts(*patch, bytes->size()) << "\n";
  return absl::OkStatus();
}

// Fails and names the first tensor in which two models differ.
absl::Status CheckSameTensors(const Model& before, const Model& after) {
  if (before.facts.type != after.facts.type) {
    return absl::InvalidArgumentError(
        absl::StrCat(before.path, " has weights of type ",
                     follow::SafetensorsTypeName(before.facts.type), ", but ", after.path, " has ",
                     follow::SafetensorsTypeName(after.facts.type), ": convert one of them"));
  }
  const follow::TensorLayout& a = before.facts.layout;
  const follow::TensorLayout& b = after.facts.layout;
  const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (at.first == a.end() && at.second == b.end()) return absl::OkStatus();
  const auto name = [](const auto& found, const auto& layout) {
    return found == layout.end() ? "none" : absl::StrCat("`", found->name, "`");
  };
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", at.first - a.begin(), " is ", name(at.first, a), " in ", before.path,
                   ", but ", name(at.second, b), " in ", after.path,
                   ", or has another shape there: a patch needs equal names, shapes and order"));
}

absl::Status Make(const MakePatchCommand& command, std::ostream& out) {
  const absl::StatusOr<Model> before = LoadModel(command.before);
  if (!before.ok()) return before.status();
  const absl::StatusOr<Model> after = LoadModel(command.after);
  if (!after.ok()) return after.status();
  if (absl::Status same = CheckSameTensors(*before, *after); !same.ok()) return same;
  const uint64_t one_less = std::max<uint64_t>(command.version, 1) - 1;
  return WriteResult(
      command.output,
      follow::EncodePatch(
          {.base_version = command.base_version.value_or(one_less), .version = command.version},
          before->facts.layout, before->facts.type, before->weights(), after->weights()),
      out);
}

absl::Status Anchor(const MakeAnchorCommand& command, std::ostream& out) {
  const absl::StatusOr<Model> model = LoadModel(command.model);
  if (!model.ok()) return model.status();
  return WriteResult(command.output,
                     follow::EncodeAnchor(command.version, model->facts.layout, model->facts.type,
                                          model->weights()),
                     out);
}

absl::Status Apply(const ApplyPatchesCommand& command, std::ostream& out) {
  absl::StatusOr<Model> model = LoadStart(command.files.front());
  if (!model.ok()) return model.status();
  for (const std::string& path : absl::MakeConstSpan(command.files).subspan(1)) {
    LoadedPatch loaded;
    if (absl::Status status = LoadPatch(path, &loaded); !status.ok()) return status;
    if (absl::Status done = ApplyTo(path, *loaded.patch, &*model); !done.ok()) return done;
  }
  if (absl::Status written = Write(command.output, model->file); !written.ok()) return written;
  out << EscapeControls(command.output) << ": digest " << follow::ToHex(model->digest) << "\n";
  return absl::OkStatus();
}

absl::Status Verify(const VerifyPatchesCommand& command, std::ostream& out) {
  absl::StatusOr<Model> model = absl::NotFoundError("no model");
  if (!command.model.empty()) {
    model = LoadModel(command.model);
    if (!model.ok()) return model.status();
  }
  std::optional<PatchHeader> previous;
  for (const std::string& path : command.patches) {
    LoadedPatch loaded;
    if (absl::Status status = LoadPatch(path, &loaded); !status.ok()) return status;
    const PatchHeader& header = loaded.patch->header();
    if (model.ok()) {
      if (absl::Status done = ApplyTo(path, *loaded.patch, &*model); !done.ok()) return done;
    } else if (previous.has_value() && !header.anchor && previous->result != header.base) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": the patch needs version ", header.base_version, " with digest ",
                       follow::ToHex(header.base), ", but the patch before it leads to version ",
                       previous->version, " with digest ", follow::ToHex(previous->result)));
    }
    previous = header;
    out << EscapeControls(path) << ": ok, " << Versions(header) << ", digest "
        << follow::ToHex(header.result) << "\n";
  }
  return absl::OkStatus();
}

std::array<size_t, 3> CountMethods(const Patch& patch) {
  std::array<size_t, 3> counts{};
  for (const Patch::Part& part : patch.parts()) ++counts[static_cast<size_t>(part.method)];
  return counts;
}

void Describe(const std::string& path, const LoadedPatch& loaded, std::ostream& out) {
  const PatchHeader& header = loaded.patch->header();
  const auto [same, raw, sparse] = CountMethods(*loaded.patch);
  out << EscapeControls(path) << ": " << Versions(header) << "\n"
      << "  type        " << std::string(follow::SafetensorsTypeName(header.type)) << "\n"
      << "  amounts     " << Amounts(*loaded.patch, loaded.file.size()) << "\n"
      << "  parts       " << sparse << " with changes, " << raw << " complete, " << same
      << " unchanged\n";
  if (header.anchor) {
    out << "  tensors     " << loaded.patch->layout().size() << "\n";
  } else {
    out << "  base        " << follow::ToHex(header.base) << "\n";
  }
  out << "  digest      " << follow::ToHex(header.result) << "\n"
      << "  layout      " << follow::ToHex(header.layout) << "\n";
}

nlohmann::ordered_json ToJson(const std::string& path, const LoadedPatch& loaded) {
  const PatchHeader& header = loaded.patch->header();
  const auto [same, raw, sparse] = CountMethods(*loaded.patch);
  nlohmann::ordered_json json = {{"file", ValidText(path)},
                                 {"anchor", header.anchor},
                                 {"base_version", header.base_version},
                                 {"version", header.version},
                                 {"type", std::string(follow::SafetensorsTypeName(header.type))},
                                 {"elements", header.elements},
                                 {"changed", loaded.patch->changed()},
                                 {"bytes", loaded.file.size()}};
  if (!header.anchor && loaded.patch->changed() > 0) {
    json["bytes_per_changed_weight"] =
        static_cast<double>(loaded.file.size()) / static_cast<double>(loaded.patch->changed());
  }
  json["parts"] = {{"sparse", sparse}, {"raw", raw}, {"same", same}};
  json["base"] = follow::ToHex(header.base);
  json["digest"] = follow::ToHex(header.result);
  json["layout"] = follow::ToHex(header.layout);
  return json;
}

absl::Status DescribeAll(const DescribePatchesCommand& command, std::ostream& out) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const std::string& path : command.patches) {
    LoadedPatch loaded;
    if (absl::Status status = LoadPatch(path, &loaded); !status.ok()) return status;
    if (command.json) {
      all.push_back(ToJson(path, loaded));
    } else {
      Describe(path, loaded, out);
    }
  }
  if (command.json) out << all.dump(2) << "\n";
  return absl::OkStatus();
}

int ExitCode(const absl::Status& status, std::ostream& out, std::ostream& err) {
  if (!status.ok()) {
    err << "error: " << EscapeControls(status.message()) << "\n";
    return 1;
  }
  return out.flush() ? 0 : 1;
}

}  // namespace

int MakePatch(const MakePatchCommand& command, std::ostream& out, std::ostream& err) {
  return ExitCode(Make(command, out), out, err);
}

int MakeAnchor(const MakeAnchorCommand& command, std::ostream& out, std::ostream& err) {
  return ExitCode(Anchor(command, out), out, err);
}

int ApplyPatches(const ApplyPatchesCommand& command, std::ostream& out, std::ostream& err) {
  return ExitCode(Apply(command, out), out, err);
}

int VerifyPatches(const VerifyPatchesCommand& command, std::ostream& out, std::ostream& err) {
  return ExitCode(Verify(command, out), out, err);
}

int DescribePatches(const DescribePatchesCommand& command, std::ostream& out, std::ostream& err) {
  return ExitCode(DescribeAll(command, out), out, err);
}

}  // namespace sluice::cli
