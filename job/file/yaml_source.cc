// SPDX-License-Identifier: Apache-2.0
#include "job/file/yaml_source.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/parser.h>

#include <exception>
#include <optional>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "job/file/job_file.h"

namespace sluice::job {
namespace {

// Returns the position of the first byte that must not appear in a text, or npos.
size_t FindControlCharacter(absl::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F) return i;
  }
  return absl::string_view::npos;
}

// Finds the first value of a document.
class RootFinder final : public YAML::EventHandler {
 public:
  const std::optional<YAML::Mark>& root() const { return root_; }

 private:
  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { Note(mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { Note(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {
    Note(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/,
                       YAML::anchor_t /*anchor*/, YAML::EmitterStyle::value /*style*/) override {
    Note(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    Note(mark);
  }
  void OnMapEnd() override {}

  void Note(const YAML::Mark& mark) {
    if (!root_.has_value()) root_ = mark;
  }

  std::optional<YAML::Mark> root_;
};

// Returns the place of the second document of the text, if it has one. YAML::LoadAll would read
// documents without end from a text that begins with a comma, because its parser does not move on.
std::optional<YAML::Mark> SecondDocument(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  RootFinder first;
  RootFinder second;
  if (!parser.HandleNextDocument(first) || !parser.HandleNextDocument(second)) return std::nullopt;
  return second.root();
}

}  // namespace

absl::StatusOr<YAML::Node> ParseYaml(absl::string_view text, absl::string_view name) {
  if (text.size() > kMaxJobFileSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": ", text.size(), " bytes is too large for a job; the limit is ", kMaxJobFileSize));
  }
  const size_t control = FindControlCharacter(text);
  if (control != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": not a text file (control character at byte ", control, ")"));
  }
  try {
    const std::string whole(text);
    const std::optional<YAML::Mark> second = SecondDocument(whole);
    if (!second.has_value()) return YAML::Load(whole);
    return absl::InvalidArgumentError(
        absl::StrCat(YamlSource::File(name).At(*second),
                     ": a second YAML document; a job file has one document, without a --- line"));
  } catch (const YAML::DeepRecursion& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(YamlSource::File(name).At(error.mark), ": nested too deeply for a job"));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(YamlSource::File(name).At(error.mark), ": not YAML: ", error.msg));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": not YAML: ", error.what()));
  }
}

std::string YamlSource::At(const YAML::Mark& mark) const {
  if (!has_lines_ || mark.is_null()) return name_;
  return absl::StrCat(name_, ":", mark.line + 1, ":", mark.column + 1);
}

}  // namespace sluice::job
