#include "compress/codec_spec.h"

#include <algorithm>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "compress/codec_table.h"

namespace sluice {
namespace {

constexpr size_t kLongestSpec = 256;
constexpr absl::string_view kValueNames[] = {"fp16", "int4"};  // By ValueFormat.
constexpr absl::string_view kCompensatorNames[] = {"noef"};
constexpr absl::string_view kMapKeys[] = {"codec",     "level",  "density",
                                          "threshold", "values", "feedback"};

std::vector<absl::string_view> CodecNames() {
  std::vector<absl::string_view> names;
  for (const CodecEntry& entry : Codecs()) names.push_back(entry.name);
  return names;
}

// "unknown codec "topkk"; did you mean "topk"? Known: none, topk".
std::string UnknownName(absl::string_view kind, absl::string_view name,
                        absl::Span<const absl::string_view> known) {
  const absl::string_view nearest = NearestName(name, known);
  return absl::StrCat(name.empty()
                          ? absl::StrCat("expected a ", kind)
                          : absl::StrCat("unknown ", kind, " \"", absl::CHexEscape(name), "\""),
                      nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?"),
                      nearest.empty() ? "; known: " : " Known: ", absl::StrJoin(known, ", "));
}

// What a codec calls its level; empty: it takes none.
absl::string_view LevelName(CodecId codec) {
  if (codec == CodecId::kTopK) return "density";
  if (codec == CodecId::kTernary) return "threshold";
  return "";
}

absl::string_view CodecName(CodecId codec) { return FindCodec(codec)->name; }

// Why `text` is no level of `codec`; empty if it is one, then written to `*level`.
std::string ReadLevel(CodecId codec, absl::string_view text, double* level) {
  const std::string what = absl::StrCat("the ", LevelName(codec), " of ", CodecName(codec));
  absl::string_view number = text;
  const bool percent = absl::EndsWith(number, "%");
  if (percent) number.remove_suffix(1);
  const bool plain = !number.empty() && std::all_of(number.begin(), number.end(), [](char c) {
    return ('0' <= c && c <= '9') || c == '.' || c == 'e' || c == '-';
  });
  double value = 0;
  if (!plain || !absl::SimpleAtod(number, &value)) {
    return absl::StrCat(what, " must be a number like ", FindCodec(codec)->example);
  }
  if (percent) value /= 100;
  if (!(value > 0 && value <= 1)) {
    return absl::StrCat(what, " must be above 0 and at most 1 (100%)");
  }
  *level = value;
  return "";
}

// Reads a spec from its front, keeping the place for errors.
class SpecReader {
 public:
  explicit SpecReader(absl::string_view text) : text_(text) {}

  absl::StatusOr<CodecSpec> Read() {
    CodecSpec spec;
    absl::Status status = ReadCodec(&spec);
    if (status.ok()) status = ReadArgument(&spec);
    if (status.ok()) status = ReadValues(&spec);
    if (status.ok()) status = ReadCompensators(&spec);
    if (!status.ok()) return status;
    return spec;
  }

 private:
  // Points at text_[at].
  absl::Status ErrorAt(size_t at, absl::string_view what) const {
    // Every character takes one column, whatever the text holds.
    std::string shown;
    for (const char c : text_) shown += (' ' <= c && c <= '~') ? c : '?';
    return absl::InvalidArgumentError(
        absl::StrCat("codec spec: ", what, "\n  ", shown, "\n  ", std::string(at, ' '), "^"));
  }

  absl::string_view Word() {
    const size_t end = std::min(text_.find_first_of(":+/", at_), text_.size());
    const absl::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    return word;
  }
  bool Take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  absl::Status ReadCodec(CodecSpec* spec) {
    const absl::string_view name = Word();
    for (const CodecEntry& entry : Codecs()) {
      if (entry.name != name) continue;
      spec->codec = entry.id;
      return absl::OkStatus();
    }
    return ErrorAt(0, UnknownName("codec", name, CodecNames()));
  }

  absl::Status ReadArgument(CodecSpec* spec) {
    const absl::string_view level = LevelName(spec->codec);
    const size_t colon = at_;
    if (!Take(':')) {
      if (level.empty()) return absl::OkStatus();
      return ErrorAt(at_, absl::StrCat(CodecName(spec->codec), " needs a ", level, ", as in ",
                                       FindCodec(spec->codec)->example));
    }
    if (level.empty()) {
      return ErrorAt(colon, absl::StrCat(CodecName(spec->codec), " takes no argument"));
    }
    const size_t at = at_;
    const std::string problem = ReadLevel(spec->codec, Word(), &spec->level);
    return problem.empty() ? absl::OkStatus() : ErrorAt(at, problem);
  }

  absl::Status ReadValues(CodecSpec* spec) {
    const size_t plus = at_;
    if (!Take('+')) return absl::OkStatus();
    if (spec->codec != CodecId::kTopK) {
      return ErrorAt(plus, absl::StrCat(CodecName(spec->codec), " takes no value format"));
    }
    const size_t at = at_;
    const absl::string_view name = Word();
    for (size_t i = 0; i < std::size(kValueNames); ++i) {
      if (kValueNames[i] != name) continue;
      spec->values = static_cast<ValueFormat>(i);
      return absl::OkStatus();
    }
    return ErrorAt(at, UnknownName("value format", name, kValueNames));
  }

  absl::Status ReadCompensators(CodecSpec* spec) {
    while (at_ < text_.size()) {
      if (!Take('/')) return ErrorAt(at_, "nothing can follow here but /noef");
      const size_t at = at_;
      const absl::string_view name = Word();
      if (name != "noef") return ErrorAt(at, UnknownName("compensator", name, kCompensatorNames));
      if (!spec->error_feedback) return ErrorAt(at, "noef is named twice");
      spec->error_feedback = false;
    }
    return absl::OkStatus();
  }

  const absl::string_view text_;
  size_t at_ = 0;
};

std::string FormatLevel(CodecId codec, double level) {
  // The shortest text that reads back as the same number; densities as percentages where that is
  // possible.
  for (const bool percent : {codec == CodecId::kTopK, false}) {
    for (int digits = 1; digits <= 17; ++digits) {
      const std::string text = absl::StrFormat("%.*g", digits, percent ? level * 100 : level);
      double value = 0;
      // A plus begins a value format: "1e+02%" waits for its third digit.
      if (absl::StrContains(text, '+')) continue;
      if (absl::SimpleAtod(text, &value) && (percent ? value / 100 : value) == level) {
        return absl::StrCat(text, percent ? "%" : "");
      }
    }
  }
  return absl::StrCat(level);
}

absl::Status MapError(absl::string_view key, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("codec: ", key, ": ", problem));
}

// The spec line that `entries` spell, without looking at values.
absl::StatusOr<CodecSpec> ReadMap(const std::map<std::string, std::string>& entries) {
  const auto codec = entries.find("codec");
  if (codec == entries.end()) {
    return absl::InvalidArgumentError("codec: the key codec is missing");
  }
  absl::StatusOr<CodecSpec> spec = CodecSpec();
  const std::vector<absl::string_view> names = CodecNames();
  const auto name = std::find(names.begin(), names.end(), codec->second);
  if (name == names.end()) return MapError("codec", UnknownName("codec", codec->second, names));
  spec->codec = Codecs()[name - names.begin()].id;

  const absl::string_view level_name = LevelName(spec->codec);
  absl::string_view level_key;
  for (const auto& [key, value] : entries) {
    if (key == "codec") continue;
    if (key == "level" || (key == level_name && !level_name.empty())) {
      if (level_name.empty()) return MapError(key, absl::StrCat(*name, " takes no level"));
      if (!level_key.empty()) return MapError(key, absl::StrCat("says the same as ", level_key));
      level_key = key;
      const std::string problem = ReadLevel(spec->codec, value, &spec->level);
      if (!problem.empty()) {
        return MapError(key, absl::StrCat("\"", absl::CHexEscape(value), "\": ", problem));
      }
    } else if (key == "values" && spec->codec == CodecId::kTopK) {
      const auto format = std::find(std::begin(kValueNames), std::end(kValueNames), value);
      if (format == std::end(kValueNames)) {
        return MapError(key, UnknownName("value format", value, kValueNames));
      }
      spec->values = static_cast<ValueFormat>(format - std::begin(kValueNames));
    } else if (key == "feedback") {
      if (value != "true" && value != "false") {
        return MapError(key,
                        absl::StrCat("\"", absl::CHexEscape(value), "\" must be true or false"));
      }
      spec->error_feedback = value == "true";
    } else if (std::find(std::begin(kMapKeys), std::end(kMapKeys), key) != std::end(kMapKeys)) {
      return MapError(key, absl::StrCat(*name, " takes no ", key));
    } else {
      return absl::InvalidArgumentError(absl::StrCat("codec: ", UnknownName("key", key, kMapKeys)));
    }
  }
  if (!level_name.empty() && level_key.empty()) {
    return MapError(*name, absl::StrCat("needs a ", level_name));
  }
  return spec;
}

}  // namespace

absl::StatusOr<CodecSpec> ParseCodecSpec(absl::string_view text) {
  if (text.size() > kLongestSpec) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec spec of ", text.size(), " characters: the limit is ", kLongestSpec));
  }
  return SpecReader(text).Read();
}

absl::StatusOr<CodecSpec> CodecSpecFromMap(const std::map<std::string, std::string>& entries) {
  return ReadMap(entries);
}

std::string ToString(const CodecSpec& spec) {
  std::string text(CodecName(spec.codec));
  if (!LevelName(spec.codec).empty()) {
    absl::StrAppend(&text, ":", FormatLevel(spec.codec, spec.level));
  }
  if (spec.values != ValueFormat::kFp16) {
    absl::StrAppend(&text, "+", kValueNames[static_cast<size_t>(spec.values)]);
  }
  if (!spec.error_feedback) absl::StrAppend(&text, "/noef");
  return text;
}

}  // namespace sluice
