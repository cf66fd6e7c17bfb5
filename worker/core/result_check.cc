// SPDX-License-Identifier: Apache-2.0
#include "worker/core/result_check.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compress/frame.h"
#include "job/control_spec.h"
#include "protocol/compression_plan.h"

namespace sluice::worker {

absl::Status ResultCheck::CheckPlan(uint32_t shard, const protocol::ExchangeReply& answer) const {
  if (answer.plan == nullptr) return absl::OkStatus();
  if (!options_.exchange.control.makes_plans())
    return absl::InvalidArgumentError("the job makes none");
  if (shard != 0 || (options_.exchange.in_lockstep() &&
                     answer.plan->effective_step != answer.step + job::kPlanDelay)) {
    return absl::InvalidArgumentError(
        absl::StrCat("it comes from shard ", shard, " with a result of step ", answer.step,
                     ", and begins with step ", answer.plan->effective_step));
  }
  return protocol::CheckPlan(*answer.plan, options_.exchange.compression, options_.table);
}

absl::Status ResultCheck::Check(uint32_t shard, const Own& own,
                                const protocol::ExchangeReply& answer) const {
  for (const absl::Status& status : {CheckRecord(own, answer), CheckMembers(shard, own, answer)}) {
    if (!status.ok()) return status;
  }
  const std::vector<uint32_t>& chunks = options_.layout.bundles[shard][answer.bundle].chunks;
  const size_t wanted = answer.record.n == 0 ? 0 : chunks.size();
  if (!options_.exchange.in_lockstep()) {
    const absl::Status versions = CheckVersions(own.version, chunks.size(), answer);
    if (!versions.ok()) return versions;
  } else if (answer.exact && options_.rack_of == 0) {
    return absl::InvalidArgumentError(absl::StrCat("it has all parameters, which mode ",
                                                   NameOf(options_.exchange.mode), " never sends"));
  } else if (answer.results.size() != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", answer.results.size(), " frames, wanted ", wanted));
  }
  for (size_t i = 0; i < answer.results.size(); ++i) {
    const protocol::Chunk& chunk = options_.layout.chunks[chunks[i]];
    const absl::Status frame = CheckFrame(answer.results[i], chunk);
    if (frame.ok()) continue;
    return absl::Status(frame.code(),
                        absl::StrCat("frame ", i, ", for ", options_.table[chunk.tensor].name,
                                     " from element ", chunk.offset, ": ", frame.message()));
  }
  const uint32_t checksum = protocol::BundleChecksum(answer.results);
  if (checksum == answer.record.result_checksum) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("its frames have checksum %08x, its record says %08x",
                                             checksum, answer.record.result_checksum));
}

absl::Status ResultCheck::CheckFrame(const std::string& frames,
                                     const protocol::Chunk& chunk) const {
  const absl::Status valid = compress::ValidateFrames(protocol::FrameBytes(frames), chunk.count);
  if (!valid.ok() || compress::DecodeAlone(protocol::FrameBytes(frames))) return valid;
  return absl::InvalidArgumentError("no mean can be read from its format alone");
}

// Without lockstep: checks that the answer continues from this worker's version.
absl::Status ResultCheck::CheckVersions(uint64_t own_version, size_t chunks,
                                        const protocol::ExchangeReply& answer) const {
  const size_t found = answer.results.size();
  if (found != chunks && (found > 0 || answer.exact)) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", found, " frames, wanted ", chunks, answer.exact ? "" : " or none"));
  }
  const bool continues = answer.exact ? answer.version >= std::max(own_version, uint64_t{1})
                         : found == 0 ? answer.version == own_version
                                      : answer.base_version == own_version && own_version > 0 &&
                                            answer.version > own_version;
  if (continues) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "it leads from version ", answer.base_version, " to ", answer.version,
      answer.exact ? " with all parameters" : "", ", and this worker is at ", own_version));
}

// Checks one entry of a record. Entries are in (rank, step) order. Each entry belongs to the
// record's step or, with a quorum, to an earlier step.
absl::Status ResultCheck::CheckIncluded(const protocol::ClosingRecord& record, size_t i) const {
  const protocol::Included& included = record.included[i];
  const auto place = [](const protocol::Included& of) {
    return std::pair(of.rank, of.origin_step);
  };
  if (included.rank >= options_.world_size ||
      (i > 0 && place(included) <= place(record.included[i - 1]))) {
    return absl::InvalidArgumentError(absl::StrCat("its record lists rank ", included.rank,
                                                   " out of order or of no worker (",
                                                   options_.world_size, " workers)"));
  }
  if (included.origin_step == record.step) return absl::OkStatus();
  if (options_.exchange.quorum > 0 && included.origin_step < record.step) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("its record lists work of rank ", included.rank,
                                                 " for step ", included.origin_step));
}

// A newcomer that catches up in lockstep gets results of steps of which it is no member.
absl::Status ResultCheck::CheckMembers(uint32_t shard, const Own& own,
                                       const protocol::ExchangeReply& answer) const {
  const std::vector<uint32_t>& members = answer.members;
  const bool listed = options_.exchange.lists_members() && shard == 0 && answer.bundle == 0;
  if (!listed && members.empty()) return absl::OkStatus();
  const bool ascend =
      std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) == members.end();
  const bool may_be_absent = own.catching_up && options_.exchange.in_lockstep();
  const bool has_self = may_be_absent || std::find(members.begin(), members.end(),
                                                   options_.sender.rank) != members.end();
  const bool in_range = members.empty() ? may_be_absent : members.back() < options_.world_size;
  if (listed && ascend && has_self && in_range) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("it lists the members ", absl::StrJoin(members, ", "),
                   listed ? "; wanted ranks in ascending order, with this worker's"
                          : ", and only shard 0's first bundle lists members, in an elastic job "
                            "that is asynchronous or has a quorum"));
}

absl::Status ResultCheck::CheckRecord(const Own& own, const protocol::ExchangeReply& answer) const {
  const protocol::ClosingRecord& record = answer.record;
  if (record.step != answer.step || record.bundle != answer.bundle ||
      record.term != options_.sender.term) {
    return absl::InvalidArgumentError(
        absl::StrCat("its record is of bundle ", record.bundle, " at step ", record.step,
                     " in term ", record.term, ", wanted term ", options_.sender.term));
  }
  uint32_t contributed = 0;
  bool lists_self = false;
  for (size_t i = 0; i < record.included.size(); ++i) {
    const protocol::Included& included = record.included[i];
    const absl::Status valid = CheckIncluded(record, i);
    if (!valid.ok()) return valid;
    if (!included.skipped) contributed += included.weight;
    if (included.rank != options_.sender.rank || included.origin_step != record.step) continue;
    lists_self = true;
    // While this worker catches up, the checksum may belong to its predecessor's contribution.
    if (included.checksum != own.checksum && !own.catching_up) {
      return absl::DataLossError(
          absl::StrFormat("its record says this worker sent checksum %08x, it sent %08x",
                          included.checksum, own.checksum));
    }
  }
  if (!lists_self && options_.exchange.quorum == 0 && !own.catching_up) {
    return absl::InvalidArgumentError(
        absl::StrCat("its record leaves rank ", options_.sender.rank, " out, this worker"));
  }
  if (options_.rack_of > 0) {
    if (record.n <= options_.rack_of) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "its record divides by ", record.n, ", and the job has ", options_.rack_of, " workers"));
  }
  if (record.n == contributed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("its record divides by ", record.n,
                                                 " and includes ", contributed, " contributions"));
}

}  // namespace sluice::worker
