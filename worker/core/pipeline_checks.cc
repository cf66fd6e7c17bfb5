// Checks of the results that shards send to a Pipeline.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compress/frame.h"
#include "job/control_spec.h"
#include "worker/core/pipeline.h"

namespace sluice::worker {

absl::Status Pipeline::RecordPlan(uint32_t shard, const protocol::ExchangeReply& answer) {
  if (answer.plan == nullptr) return absl::OkStatus();
  absl::Status fits;
  if (!options_.makes_plans) {
    fits = absl::InvalidArgumentError("the job makes none");
  } else if (shard != 0 ||
             (options_.lockstep && answer.plan->effective_step != answer.step + job::kPlanDelay)) {
    fits = absl::InvalidArgumentError(
        absl::StrCat("it comes from shard ", shard, " with a result of step ", answer.step,
                     ", and begins with step ", answer.plan->effective_step));
  }
  if (fits.ok()) fits = protocol::CheckPlan(*answer.plan, options_.compression, options_.table);
  if (fits.ok() && options_.lockstep) fits = plans_.Learn(answer.plan);
  // Shard 0's current plan overrides the plan from a checkpoint.
  if (fits.ok() && !options_.lockstep) plans_.Replace(answer.plan);
  if (fits.ok()) return fits;
  return absl::InvalidArgumentError(
      absl::StrCat("compression plan ", answer.plan->id, " is invalid: ", fits.message()));
}

absl::Status Pipeline::CheckResult(uint32_t shard, const BundleState& flight,
                                   const protocol::ExchangeReply& answer) const {
  const absl::Status record = CheckRecord(flight, answer);
  if (!record.ok()) return record;
  const std::vector<uint32_t>& chunks = options_.layout.bundles[shard][answer.bundle].chunks;
  const size_t wanted = answer.record.n == 0 ? 0 : chunks.size();
  if (!options_.lockstep) {
    const absl::Status steps =
        CheckSteps(shards_[shard].versions[answer.bundle], chunks.size(), answer);
    if (!steps.ok()) return steps;
  } else if (answer.results.size() != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", answer.results.size(), " frames, wanted ", wanted));
  }
  for (size_t i = 0; i < answer.results.size(); ++i) {
    const protocol::Chunk& chunk = options_.layout.chunks[chunks[i]];
    absl::Status frame =
        compress::ValidateFrames(protocol::FrameBytes(answer.results[i]), chunk.count);
    if (frame.ok() && !compress::DecodeAlone(protocol::FrameBytes(answer.results[i]))) {
      frame = absl::InvalidArgumentError("no mean can be read from its format alone");
    }
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

// Without lockstep: checks that the answer continues from this worker's version.
absl::Status Pipeline::CheckSteps(uint64_t own_version, size_t chunks,
                                  const protocol::ExchangeReply& answer) const {
  const size_t found = answer.results.size();
  if (found != chunks && (found > 0 || answer.exact)) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", found, " frames, wanted ", chunks, answer.exact ? "" : " or none"));
  }
  const bool leads_on = found == 0     ? answer.version == own_version
                        : answer.exact ? answer.version >= std::max(own_version, uint64_t{1})
                                       : answer.base_version == own_version && own_version > 0 &&
                                             answer.version > own_version;
  if (leads_on) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "it leads from version ", answer.base_version, " to ", answer.version,
      answer.exact ? " with all parameters" : "", ", and this worker is at ", own_version));
}

// Checks one entry of a record. Entries are in (rank, step) order. Each entry belongs to the
// record's step or, with a quorum, to an earlier step.
absl::Status Pipeline::CheckPlace(const protocol::ClosingRecord& record, size_t i) const {
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
  if (options_.quorum && included.origin_step < record.step && !included.skipped) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("its record lists work of rank ", included.rank,
                                                 " for step ", included.origin_step));
}

absl::Status Pipeline::CheckRecord(const BundleState& flight,
                                   const protocol::ExchangeReply& answer) const {
  const protocol::ClosingRecord& record = answer.record;
  if (record.step != answer.step || record.bundle != answer.bundle ||
      record.term != options_.sender.term) {
    return absl::InvalidArgumentError(
        absl::StrCat("its record is of bundle ", record.bundle, " at step ", record.step,
                     " in term ", record.term, ", wanted term ", options_.sender.term));
  }
  uint32_t contributed = 0;
  bool own = false;
  for (size_t i = 0; i < record.included.size(); ++i) {
    const protocol::Included& included = record.included[i];
    const absl::Status placed = CheckPlace(record, i);
    if (!placed.ok()) return placed;
    if (!included.skipped) contributed += included.weight;
    if (included.rank != options_.sender.rank || included.origin_step != record.step) continue;
    own = true;
    // While this worker catches up, the checksum may belong to its predecessor's contribution.
    if (included.checksum != flight.checksum && !catching_up_) {
      return absl::DataLossError(
          absl::StrFormat("its record says this worker sent checksum %08x, it sent %08x",
                          included.checksum, flight.checksum));
    }
  }
  if (!own && !options_.quorum && !catching_up_) {
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
