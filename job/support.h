// SPDX-License-Identifier: Apache-2.0
// The support table: the combinations of codec, compensator, direction, mode, update rule and
// membership that this version can run, and the reasons why it cannot run the others. Loading a job
// checks this table, and docs/compression.md shows it. compress/codec_table.h lists the codecs and
// compensators that exclude each other; this table adds modes and rules.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "compress/codec_spec.h"
#include "job/enums.h"
#include "job/modes.h"
#include "protocol/compression_spec.h"

namespace sluice::job {
// Returns the update rule of the job's shards: `average` (publish the mean), `accumulate` (add up
// weight changes), `outer` (apply an optimizer to weight changes), or the optimizer's name if it
// runs on the shards.
absl::string_view RuleOf(Mode mode, UpdateLocation on, absl::string_view optimizer);

struct SupportQuery {
  Mode mode = Mode::kSync;
  absl::string_view rule;
  Membership membership = Membership::kFixed;
  compress::CodecSpec codec;
  protocol::Direction direction = protocol::Direction::kUplink;
  bool quorum = false;  // True if steps may close without the stragglers.
  bool plans = false;   // True if codecs change during the job (control.policy).
  bool relays = false;  // True if workers are in racks behind relays.
  bool guard = false;   // True if shards compare contributions (guard.policy).
  bool merges = false;  // True if results are not the plain mean (merge_weights and so on).
};

struct SupportAnswer {
  Support support = Support::kBuilt;
  // The key to change in the job file. Empty if the codec must change.
  absl::string_view key;
  absl::string_view reason;  // Empty if the combination is supported.
};

// Returns whether this version supports a combination. Every query has an answer.
SupportAnswer FindSupport(const SupportQuery& query);

// Returns the reason why a job of this kind cannot have relays with any codec. Returns an empty
// string if it can.
absl::string_view RelaysRefusal(const SupportQuery& query);

// Returns the whole table as Markdown for docs/compression.md.
std::string SupportTableMarkdown();

}  // namespace sluice::job
