#include "job/file/yaml_source.h"

#include <yaml-cpp/depthguard.h>

#include <exception>
#include <vector>

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
    std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.empty()) return YAML::Node();
    if (documents.size() == 1) return documents.front();
    return absl::InvalidArgumentError(
        absl::StrCat(YamlSource::File(name).At(documents[1].Mark()),
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
