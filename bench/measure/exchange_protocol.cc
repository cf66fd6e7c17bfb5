// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/exchange_protocol.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace sluice::bench {
namespace {

// Log lines begin with a date, so they cannot begin with this word.
constexpr absl::string_view kAnswer = "exchange ";

absl::Status NotUnderstood(absl::string_view what, absl::string_view line) {
  return absl::InvalidArgumentError(
      absl::StrCat("not ", what, ": '", absl::CHexEscape(line.substr(0, 200)), "'"));
}

template <typename... Numbers>
bool ParseAll(absl::Span<const absl::string_view> words, Numbers*... numbers) {
  if (words.size() != sizeof...(numbers)) return false;
  size_t next = 0;
  return (absl::SimpleAtoi(words[next++], numbers) && ...);
}

bool ParseEach(absl::Span<const absl::string_view> words, absl::Span<int64_t> numbers) {
  if (words.size() != numbers.size()) return false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!absl::SimpleAtoi(words[i], &numbers[i])) return false;
  }
  return true;
}

// The number of values before the stage times in a line.
constexpr size_t kTurnNumbers = 10;

bool ParseTurn(absl::Span<const absl::string_view> words, TurnReport* turn) {
  return words.size() >= kTurnNumbers &&
         ParseAll(words.first(kTurnNumbers), &turn->started_ns, &turn->ready_ns,
                  &turn->submitted_ns, &turn->applied_ns, &turn->apply_ns, &turn->bytes_up,
                  &turn->bytes_down, &turn->encode_ns, &turn->cpu_ns, &turn->peak_rss_bytes) &&
         ParseEach(words.subspan(kTurnNumbers), absl::MakeSpan(turn->stage_cpu_ns));
}

}  // namespace

std::string FormatOrder(const TurnOrder& order) {
  if (order.leave) return "leave\n";
  return absl::StrCat("turn ", order.start_ns, " ", order.compute_ns, "\n");
}

absl::StatusOr<TurnOrder> ParseOrder(absl::string_view line) {
  TurnOrder order;
  if (line == "leave") {
    order.leave = true;
    return order;
  }
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words[0] == "turn" &&
      ParseAll(absl::MakeSpan(words).subspan(1), &order.start_ns, &order.compute_ns)) {
    return order;
  }
  return NotUnderstood("an order", line);
}

std::string FormatJoined() { return absl::StrCat(kAnswer, "joined\n"); }

std::string FormatTurn(const TurnReport& report) {
  return absl::StrCat(
      absl::StrCat(kAnswer, "turn ", report.started_ns, " ", report.ready_ns, " "),
      absl::StrCat(report.submitted_ns, " ", report.applied_ns, " ", report.apply_ns, " "),
      absl::StrCat(report.bytes_up, " ", report.bytes_down, " ", report.encode_ns, " "),
      absl::StrCat(report.cpu_ns, " ", report.peak_rss_bytes, " "),
      absl::StrJoin(report.stage_cpu_ns, " "), "\n");
}

absl::StatusOr<std::optional<WorkerAnswer>> ParseAnswer(absl::string_view line) {
  if (!absl::ConsumePrefix(&line, kAnswer)) return std::nullopt;
  if (line == "joined") return WorkerAnswer{};
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  TurnReport turn;
  if (words[0] == "turn" && ParseTurn(absl::MakeSpan(words).subspan(1), &turn)) {
    return WorkerAnswer{turn};
  }
  return NotUnderstood("an answer of a worker", line);
}

}  // namespace sluice::bench
