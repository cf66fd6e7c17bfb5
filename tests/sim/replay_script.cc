// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/replay_script.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace sluice {
namespace {

constexpr absl::string_view kFirstLine = "sluice-replay 1";
constexpr size_t kLineWidth = 110;

std::optional<Fault> FaultOf(absl::string_view name) {
  for (int i = 0; i <= static_cast<int>(Fault::kGivesUp); ++i) {
    if (ScriptName(static_cast<Fault>(i)) == name) return static_cast<Fault>(i);
  }
  return std::nullopt;
}

// Appends lines such as "draws up/1/0: 3 7", as many as the numbers need.
template <typename Numbers>
void AppendNumbers(const std::string& head, const Numbers& numbers, std::string* text) {
  std::string line;
  for (const uint64_t number : numbers) {
    if (line.empty()) line = absl::StrCat(head, ":");
    absl::StrAppend(&line, " ", number);
    if (line.size() < kLineWidth) continue;
    absl::StrAppend(text, line, "\n");
    line.clear();
  }
  if (!line.empty()) absl::StrAppend(text, line, "\n");
}

using Words = std::vector<absl::string_view>;

absl::StatusOr<uint64_t> Number(absl::string_view word) {
  uint64_t number = 0;
  if (absl::SimpleAtoi(word, &number)) return number;
  return absl::InvalidArgumentError(absl::StrCat("\"", word, "\" is no number"));
}

absl::Status ParseFault(const Words& words, ReplayScript* script) {
  if (words.size() < 3) return absl::InvalidArgumentError("a fault needs a time and a name");
  const absl::StatusOr<uint64_t> at = Number(words[1]);
  if (!at.ok()) return at.status();
  const std::optional<Fault> fault = FaultOf(words[2]);
  if (!fault.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no fault \"", words[2], "\""));
  }
  ReplayFault& of = script->faults.emplace_back();
  of.at = static_cast<int64_t>(*at);
  of.fault = *fault;
  script->options.faults.push_back(*fault);
  of.in_rack = words.size() > 3 && words[3] == "in_rack";
  for (size_t i = of.in_rack ? 4 : 3; i < words.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(words[i], '=');
    const absl::StatusOr<uint64_t> value = Number(parts.second);
    if (!value.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a choice is a name, \"=\" and a number; found \"", words[i], "\""));
    }
    of.choices.emplace_back(parts.first, *value);
  }
  return absl::OkStatus();
}

// Parses the numbers after a channel such as "up/1/0:", which is word `at`.
absl::Status ParseNumbers(const Words& words, size_t at, std::string* channel,
                          std::vector<uint64_t>* numbers) {
  absl::string_view name = at < words.size() ? words[at] : "";
  if (words.size() < at + 2 || !absl::ConsumeSuffix(&name, ":")) {
    return absl::InvalidArgumentError("a channel with a colon and at least one number must follow");
  }
  *channel = std::string(name);
  for (size_t i = at + 1; i < words.size(); ++i) {
    const absl::StatusOr<uint64_t> number = Number(words[i]);
    if (!number.ok()) return number.status();
    numbers->push_back(*number);
  }
  return absl::OkStatus();
}

absl::Status ParseStruck(const Words& words, ReplayScript* script) {
  const std::optional<Fault> fault = words.size() > 1 ? FaultOf(words[1]) : std::nullopt;
  if (!fault.has_value()) return absl::InvalidArgumentError("a fault of messages must follow");
  std::string channel;
  std::vector<uint64_t> numbers;
  absl::Status parsed = ParseNumbers(words, 2, &channel, &numbers);
  script->struck[{*fault, channel}].insert(numbers.begin(), numbers.end());
  return parsed;
}

absl::Status ParseDraws(const Words& words, ReplayScript* script) {
  std::string channel;
  std::vector<uint64_t> numbers;
  absl::Status parsed = ParseNumbers(words, 1, &channel, &numbers);
  std::vector<uint64_t>& listed = script->draws[channel];
  listed.insert(listed.end(), numbers.begin(), numbers.end());
  return parsed;
}

absl::Status ParseRacks(const Words& words, ReplayScript* script) {
  for (size_t i = 1; i < words.size(); ++i) {
    const absl::StatusOr<uint64_t> workers = Number(words[i]);
    if (!workers.ok()) return workers.status();
    script->racks.push_back(static_cast<uint32_t>(*workers));
  }
  return absl::OkStatus();
}

absl::Status ParseRackUplink(absl::string_view codec, ReplayScript* script) {
  const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(codec);
  if (spec.ok()) script->rack_uplink = *spec;
  return spec.status();
}

absl::Status ParseLine(absl::string_view line, ReplayScript* script) {
  const Words words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  const absl::string_view what = words[0];
  if (what == "fault") return ParseFault(words, script);
  if (what == "struck") return ParseStruck(words, script);
  if (what == "draws") return ParseDraws(words, script);
  if (what == "racks") return ParseRacks(words, script);
  if (what == "rack_uplink" && words.size() == 2) return ParseRackUplink(words[1], script);
  if (what == "shows") {
    script->shows = std::string(absl::StripAsciiWhitespace(line.substr(5)));
    return absl::OkStatus();
  }
  if (what == "option" && words.size() >= 3) {
    const size_t value = static_cast<size_t>(words[2].data() - line.data());
    return SetOption(words[1], absl::StripAsciiWhitespace(line.substr(value)), &script->options);
  }
  if (what == "otherwise" && words.size() == 2) {
    const absl::StatusOr<uint64_t> seed = Number(words[1]);
    script->otherwise = seed.value_or(0);
    return seed.status();
  }
  if (what == "expect" && words.size() == 3) {
    const absl::StatusOr<uint64_t> count = Number(words[2]);
    script->expected.emplace_back(words[1], count.value_or(0));
    return count.ok() ? CountOf(words[1], SurvivalReport()).status() : count.status();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a line is a comment or begins with option, racks, rack_uplink, fault, struck, "
                   "draws, otherwise, expect or shows, and the values of it; found \"",
                   line.substr(0, 40), "\""));
}

}  // namespace

std::string ScriptName(Fault fault) { return absl::StrReplaceAll(ToString(fault), {{" ", "_"}}); }

absl::StatusOr<uint64_t> CountOf(absl::string_view name, const SurvivalReport& report) {
  if (name == "rollbacks") return report.rollbacks;
  if (name == "checkpoints") return report.checkpoints;
  if (name == "late_joiners") return report.late_joiners;
  if (name == "starts_unheard") return report.starts_unheard;
  if (name == "late_failed_writes") return report.late_failed_writes;
  if (name == "records_written_late") return report.records_written_late;
  const std::optional<Fault> fault = FaultOf(name);
  if (!fault.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("a report has no count of \"", name, "\""));
  }
  const auto count = report.faults.find(*fault);
  return count == report.faults.end() ? 0 : count->second;
}

std::string FormatReplay(const ReplayScript& script) {
  std::string text = absl::StrCat(kFirstLine, "\n");
  for (const absl::string_view line : absl::StrSplit(script.comment, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, "# ", line, "\n");
  }
  if (!script.shows.empty()) absl::StrAppend(&text, "shows ", script.shows, "\n");
  for (const auto& [name, count] : script.expected) {
    absl::StrAppend(&text, "expect ", name, " ", count, "\n");
  }
  absl::StrAppend(&text, FormatOptions(script.options));
  if (!script.racks.empty()) {
    absl::StrAppend(&text, "racks ", absl::StrJoin(script.racks, " "), "\nrack_uplink ",
                    compress::ToString(script.rack_uplink), "\n");
  }
  for (const ReplayFault& fault : script.faults) {
    absl::StrAppend(&text, "fault ", fault.at, " ", ScriptName(fault.fault),
                    fault.in_rack ? " in_rack" : "");
    for (const auto& [name, value] : fault.choices) absl::StrAppend(&text, " ", name, "=", value);
    absl::StrAppend(&text, "\n");
  }
  for (const auto& [of, messages] : script.struck) {
    AppendNumbers(absl::StrCat("struck ", ScriptName(of.first), " ", of.second), messages, &text);
  }
  absl::StrAppend(&text, "otherwise ", script.otherwise, "\n");
  for (const auto& [channel, numbers] : script.draws) {
    AppendNumbers(absl::StrCat("draws ", channel), numbers, &text);
  }
  return text;
}

absl::StatusOr<ReplayScript> ParseReplay(absl::string_view text) {
  ReplayScript script;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (number == 1 && line != kFirstLine) {
      return absl::InvalidArgumentError(
          absl::StrCat("line 1: a replay script begins with \"", kFirstLine, "\""));
    }
    if (number == 1 || line.empty()) continue;
    if (line[0] == '#') {
      absl::StrAppend(&script.comment, absl::StripAsciiWhitespace(line.substr(1)), "\n");
      continue;
    }
    const absl::Status parsed = ParseLine(line, &script);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", parsed.message()));
    }
  }
  return script;
}

}  // namespace sluice
