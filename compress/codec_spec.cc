// SPDX-License-Identifier: Apache-2.0
#include "compress/codec_spec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/nearest_name.h"
#include "compress/codec_table.h"
#include "compress/feedback/dgc.h"

namespace sluice::compress {
namespace {

constexpr size_t kLongestSpec = 256;
constexpr uint32_t kLongestWarmup = 1 << 30;
// Indexed by ValueFormat.
constexpr absl::string_view kValueNames[] = {"fp16", "int4", "int8", "sign", "2bit"};

struct OptionName {
  absl::string_view name;
  uint32_t option;  // The option bit that the name sets.
};
constexpr OptionName kOptionNames[] = {
    {"sr", kStochastic},
    {"minmax", kMinMax},
    {"e5m2", kE5m2},
    {"scope=tensor", kTensorScope},
    {"scope=block", kBlockScope},
    {"unbiased", kUnbiased},
    {"index=rice", kIndexRice},
    {"index=packed", kIndexPacked},
    {"index=bytes", kIndexBytes},
    {"index=bitmap", kIndexBitmap},
};

std::vector<absl::string_view> CodecNames() {
  std::vector<absl::string_view> names;
  for (const CodecEntry& entry : Codecs()) names.push_back(entry.name);
  return names;
}

std::vector<absl::string_view> CompensatorNames() {
  std::vector<absl::string_view> names;
  for (const CompensatorId id : Compensators()) names.push_back(CompensatorName(id));
  return names;
}

std::vector<absl::string_view> OptionNames(const CodecEntry& entry) {
  std::vector<absl::string_view> names;
  for (const OptionName& option : kOptionNames) {
    if ((entry.options & option.option) != 0) names.push_back(option.name);
  }
  return names;
}

// Example: "unknown codec "topkk"; did you mean "topk"? Known: none, topk".
std::string UnknownName(absl::string_view kind, absl::string_view name,
                        absl::Span<const absl::string_view> known) {
  const absl::string_view nearest = NearestName(name, known);
  return absl::StrCat(name.empty()
                          ? absl::StrCat("expected a ", kind)
                          : absl::StrCat("unknown ", kind, " \"", absl::CHexEscape(name), "\""),
                      nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?"),
                      nearest.empty() ? "; known: " : " Known: ", absl::StrJoin(known, ", "));
}

// Accepts only digits, decimal points, minus signs and exponents. Rejects inf, nan, hexadecimal
// numbers and plus signs.
bool ReadNumber(absl::string_view text, double* value) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return ('0' <= c && c <= '9') || c == '.' || c == 'e' || c == '-';
  });
  return plain && absl::SimpleAtod(text, value) && std::isfinite(*value);
}

// Parses the level of the codec into `*level`. Returns a description of the error, or an empty
// string.
std::string ReadLevel(const CodecEntry& entry, absl::string_view text, double* level) {
  const std::string what = absl::StrCat("the ", entry.level_name, " of ", entry.name);
  absl::string_view number = text;
  const bool percent = entry.level == LevelKind::kShare && absl::ConsumeSuffix(&number, "%");
  const bool times = entry.level == LevelKind::kRatio && absl::ConsumeSuffix(&number, "x");
  double value = 0;
  if (!ReadNumber(number, &value) || (entry.level == LevelKind::kRatio && !times)) {
    return absl::StrCat(what, " must be a number like ", entry.example);
  }
  if (percent) value /= 100;
  switch (entry.level) {
    case LevelKind::kNone:
      break;
    case LevelKind::kShare:
      if (!(value > 0 && value <= 1)) {
        return absl::StrCat(what, " must be above 0 and at most 1 (100%)");
      }
      break;
    case LevelKind::kPositive:
      if (!(value > 0 && value <= std::numeric_limits<float>::max())) {
        return absl::StrCat(what, " must be above 0");
      }
      break;
    case LevelKind::kPowerOfTwo:
      if (value < entry.level_min || value > entry.level_max ||
          std::exp2(std::floor(std::log2(value))) != value) {
        return absl::StrCat(what, " must be a power of two from ", entry.level_min, " to ",
                            entry.level_max);
      }
      break;
    case LevelKind::kInteger:
      if (value != std::floor(value)) return absl::StrCat(what, " must be a whole number");
      [[fallthrough]];
    case LevelKind::kRatio:
      if (value < entry.level_min || value > entry.level_max) {
        return absl::StrCat(what, " must be from ", entry.level_min, " to ", entry.level_max);
      }
      break;
  }
  *level = value;
  return "";
}

// Sets the option `name` of the codec. Returns a description of the error, or an empty string.
std::string ReadOption(const CodecEntry& entry, absl::string_view name, uint32_t* options) {
  for (const OptionName& option : kOptionNames) {
    if (option.name != name || (entry.options & option.option) == 0) continue;
    if ((option.option & kIndex) != 0 && (*options & kIndex) != 0) {
      return absl::StrCat(name, " is a second index option: a spec has at most one");
    }
    *options |= option.option;
    return "";
  }
  const std::vector<absl::string_view> known = OptionNames(entry);
  if (!known.empty()) return UnknownName("option", name, known);
  if (entry.level == LevelKind::kNone) return absl::StrCat(entry.name, " takes no argument");
  return absl::StrCat(entry.name, " takes nothing after its ", entry.level_name);
}

// Sets the argument `text` of the compensator. Returns a description of the error, or an empty
// string.
std::string ReadCompensatorArgument(absl::string_view text, CompensatorSpec* compensator) {
  const absl::string_view name = CompensatorName(compensator->id);
  if (compensator->id == CompensatorId::kDgc) {
    absl::string_view number = text;
    double value = 0;
    if (absl::ConsumePrefix(&number, "clip=")) {
      if (ReadNumber(number, &compensator->clip) && compensator->clip > 1) return "";
      return "clip must be a number above 1: gradients are clipped to this many times their usual "
             "norm";
    }
    if (absl::ConsumePrefix(&number, "warmup=")) {
      if (ReadNumber(number, &value) && value == std::floor(value) && value > 0 &&
          value <= kLongestWarmup) {
        compensator->warmup = static_cast<uint32_t>(value);
        return "";
      }
      return "warmup must be a number of steps";
    }
    if (ReadNumber(text, &value) && value >= 0 && value < 1) {
      compensator->level = value;
      return "";
    }
    return "the momentum of dgc must be at least 0 and below 1, as in dgc:0.9,clip=4,warmup=400";
  }
  if (compensator->id == CompensatorId::kDiana) {
    double value = 0;
    if (ReadNumber(text, &value) && value > 0 && value <= 1) {
      compensator->level = value;
      return "";
    }
    return "the step size of diana must be above 0 and at most 1, as in diana:0.1";
  }
  if (compensator->id == CompensatorId::kErrorFeedback) {
    double value = 0;
    if (ReadNumber(text, &value) && value > 0 && value < 1) {
      compensator->level = value;
      return "";
    }
    return "the decay of ef must be above 0 and below 1, as in ef:0.95";
  }
  return absl::StrCat(name, " takes no argument");
}

// Returns an error if a required argument is missing after parsing, and otherwise an empty string.
std::string MissingArgument(const CompensatorSpec& compensator, bool has_arguments) {
  if (compensator.id == CompensatorId::kDgc && !has_arguments) {
    return "dgc needs a momentum, as in dgc:0.9";
  }
  return "";
}

CompensatorSpec UsualCompensatorSpec(const CodecSpec& spec) {
  return {.id = UsualCompensator(spec.codec, spec.options)};
}

// Returns the reason why the options and the value format cannot be combined, or an empty string.
std::string ValueProblem(const CodecSpec& spec) {
  if (!spec.has(kUnbiased) || spec.values == ValueFormat::kFp16) return "";
  return "unbiased requires fp16 values: the others are rounded to nearest, which is biased";
}

// Returns the reason why codec and compensator cannot be combined, or an empty string.
std::string PairProblem(const CodecSpec& spec) {
  const absl::string_view refusal =
      CompensatorRefusal(spec.codec, spec.options, spec.compensator.id);
  if (!refusal.empty()) {
    return absl::StrCat(FindCodec(spec.codec).name, " cannot be combined with ",
                        CompensatorName(spec.compensator.id), ": ", refusal);
  }
  // Refuse options that have no effect, because users would believe that they have one.
  if (spec.compensator.id == CompensatorId::kErrorFeedback && spec.compensator.level != 0 &&
      TraitsOf(spec.codec, spec.options).lossless) {
    return absl::StrCat("a decay applies to what a codec leaves out, and ",
                        FindCodec(spec.codec).name, " leaves nothing out; leave the decay out");
  }
  if (spec.compensator.warmup == 0) return "";
  const double density = MakeCodec(spec)->density();
  if (density == 0) {
    return absl::StrCat("warmup lowers the density of a threshold step by step, and ",
                        FindCodec(spec.codec).name, " has no such threshold; leave warmup out");
  }
  if (density >= kWarmupDensity) {
    return absl::StrCat("warmup begins with a density of ", kWarmupDensity * 100,
                        "%, which is no more than the codec's; leave warmup out");
  }
  return "";
}

// Parses a spec from left to right and keeps the current position for error messages.
class SpecReader {
 public:
  explicit SpecReader(absl::string_view text) : text_(text) {}

  absl::StatusOr<CodecSpec> Read() {
    CodecSpec spec;
    absl::Status status = ReadCodec(&spec);
    if (status.ok()) status = ReadArguments(&spec);
    if (status.ok()) status = ReadValues(&spec);
    if (status.ok()) status = ReadCompensator(&spec);
    if (!status.ok()) return status;
    return spec;
  }

 private:
  // Returns an error that points at text_[at].
  absl::Status ErrorAt(size_t at, absl::string_view what) const {
    // Every character of the text is shown in one column, so that the caret is at the right place.
    std::string shown;
    for (const char c : text_) shown += (' ' <= c && c <= '~') ? c : '?';
    return absl::InvalidArgumentError(
        absl::StrCat("codec spec: ", what, "\n  ", shown, "\n  ", std::string(at, ' '), "^"));
  }

  absl::string_view Word() {
    const size_t end = std::min(text_.find_first_of(":+/,", at_), text_.size());
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

  absl::Status ReadArguments(CodecSpec* spec) {
    const CodecEntry& entry = FindCodec(spec->codec);
    bool level_wanted = entry.level != LevelKind::kNone;
    const size_t colon = at_;
    if (!Take(':')) {
      if (!level_wanted) return absl::OkStatus();
      return ErrorAt(
          at_, absl::StrCat(entry.name, " needs a ", entry.level_name, ", as in ", entry.example));
    }
    if (!level_wanted && entry.options == 0) {
      return ErrorAt(colon, absl::StrCat(entry.name, " takes no argument"));
    }
    do {
      const size_t at = at_;
      const absl::string_view word = Word();
      const std::string problem = level_wanted ? ReadLevel(entry, word, &spec->level)
                                               : ReadOption(entry, word, &spec->options);
      if (!problem.empty()) return ErrorAt(at, problem);
      level_wanted = false;
    } while (Take(','));
    return absl::OkStatus();
  }

  absl::Status ReadValues(CodecSpec* spec) {
    const size_t plus = at_;
    if (!Take('+')) return absl::OkStatus();
    const CodecEntry& entry = FindCodec(spec->codec);
    if (!entry.values) return ErrorAt(plus, absl::StrCat(entry.name, " takes no value format"));
    const size_t at = at_;
    const absl::string_view name = Word();
    for (size_t i = 0; i < std::size(kValueNames); ++i) {
      if (kValueNames[i] != name) continue;
      spec->values = static_cast<ValueFormat>(i);
      const std::string problem = ValueProblem(*spec);
      return problem.empty() ? absl::OkStatus() : ErrorAt(at, problem);
    }
    return ErrorAt(at, UnknownName("value format", name, kValueNames));
  }

  absl::Status ReadCompensator(CodecSpec* spec) {
    spec->compensator = UsualCompensatorSpec(*spec);
    if (at_ == text_.size()) return absl::OkStatus();
    const std::vector<absl::string_view> names = CompensatorNames();
    if (!Take('/')) {
      return ErrorAt(
          at_, absl::StrCat("only a compensator can follow here: /", absl::StrJoin(names, " /")));
    }
    const size_t at = at_;
    const absl::string_view name = Word();
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return ErrorAt(at, UnknownName("compensator", name, names));
    spec->compensator = {.id = Compensators()[found - names.begin()]};
    const bool has_arguments = Take(':');
    if (has_arguments) {
      do {
        const size_t argument = at_;
        const std::string problem = ReadCompensatorArgument(Word(), &spec->compensator);
        if (!problem.empty()) return ErrorAt(argument, problem);
      } while (Take(','));
    }
    const std::string missing = MissingArgument(spec->compensator, has_arguments);
    if (!missing.empty()) return ErrorAt(at_, missing);
    const std::string pair = PairProblem(*spec);
    if (!pair.empty()) return ErrorAt(at, pair);
    if (at_ == text_.size()) return absl::OkStatus();
    return ErrorAt(at_, "a spec has one compensator, and nothing after it");
  }

  const absl::string_view text_;
  size_t at_ = 0;
};

// Returns the shortest text that parses to the same number.
std::string ShortestNumber(double value, bool percent) {
  for (int digits = 1; digits <= 17; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, percent ? value * 100 : value);
    double read = 0;
    // A plus sign would begin a value format, so "1e+02" is rejected. Three digits then give "100".
    if (absl::StrContains(text, '+')) continue;
    if (absl::SimpleAtod(text, &read) && (percent ? read / 100 : read) == value) {
      return absl::StrCat(text, percent ? "%" : "");
    }
  }
  return percent ? "" : absl::StrFormat("%.0f", value);
}

std::string FormatLevel(const CodecEntry& entry, double level) {
  // Densities are written as percentages if possible.
  if (entry.level_name == "density") {
    const std::string text = ShortestNumber(level, /*percent=*/true);
    if (!text.empty()) return text;
  }
  return absl::StrCat(ShortestNumber(level, false), entry.level == LevelKind::kRatio ? "x" : "");
}

std::string FormatCompensator(const CompensatorSpec& compensator) {
  std::vector<std::string> arguments;
  if (compensator.id == CompensatorId::kDgc || compensator.level != 0) {
    arguments.push_back(ShortestNumber(compensator.level, false));
  }
  if (compensator.clip != 0) {
    arguments.push_back(absl::StrCat("clip=", ShortestNumber(compensator.clip, false)));
  }
  if (compensator.warmup != 0) arguments.push_back(absl::StrCat("warmup=", compensator.warmup));
  return absl::StrCat("/", CompensatorName(compensator.id), arguments.empty() ? "" : ":",
                      absl::StrJoin(arguments, ","));
}

}  // namespace

absl::StatusOr<CodecSpec> ParseCodecSpec(absl::string_view text) {
  if (text.size() > kLongestSpec) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec spec of ", text.size(), " characters: the limit is ", kLongestSpec));
  }
  return SpecReader(text).Read();
}

std::string ToString(const CodecSpec& spec) {
  const CodecEntry& entry = FindCodec(spec.codec);
  std::vector<std::string> arguments;
  if (entry.level != LevelKind::kNone) arguments.push_back(FormatLevel(entry, spec.level));
  for (const OptionName& option : kOptionNames) {
    if ((spec.options & option.option) != 0) arguments.emplace_back(option.name);
  }
  std::string text(entry.name);
  if (!arguments.empty()) absl::StrAppend(&text, ":", absl::StrJoin(arguments, ","));
  if (spec.values != ValueFormat::kFp16) {
    absl::StrAppend(&text, "+", kValueNames[static_cast<size_t>(spec.values)]);
  }
  if (spec.compensator != UsualCompensatorSpec(spec)) {
    absl::StrAppend(&text, FormatCompensator(spec.compensator));
  }
  return text;
}

}  // namespace sluice::compress
