# SPDX-License-Identifier: Apache-2.0
"""Bugs to plant in production code, one at a time, and the test that each must make fail (run.py). docs/promises.md says which promise each breaks.

The simulators have planted bugs of their own (SurvivalBug), for code that their jobs run. These are for the code around them: files,
hosts, time-outs, LibTorch and GPUs, and for rules of a core that a named test states more clearly than a seed.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Bug:
    name: str
    path: str         # From the root.
    changes: list     # (old, new): each old text stands in the file exactly once.
    program: str      # The test program, a target of its own.
    tests: str = ""   # --gtest_filter: tests that pass without the bug and fail with it.
    kinds: str = ""   # Or, for the program `simulate`: the kinds of jobs whose seeds must find it.
    shows: str = ""   # Then: a part of the violation that it must report.


TRACKER = "server/coordinator/checkpoint_tracker.cc"
COORDINATOR = "server/coordinator/coordinator.cc"
DURABLE = "protocol/checkpoint/durable_file.cc"

BUGS = [
    # Files.
    Bug("late_part_replaces_a_complete_one", DURABLE,
        [("if (::link(unfinished_.c_str(), path_.c_str()) == 0) {", "if (::rename(unfinished_.c_str(), path_.c_str()) == 0) {")],
        "checkpoint_tests", "TwoWriters.*"),
    Bug("record_replaced_before_it_is_read_back", DURABLE,
        [("  if (done.ok()) done = ReadBack();\n  if (done.ok() && may_replace) done = may_replace();\n  if (done.ok()) done = Rename(path_);\n",
          "  if (done.ok() && may_replace) done = may_replace();\n  if (done.ok()) done = Rename(path_);\n  unfinished_ = path_;\n"
          "  if (done.ok()) done = ReadBack();\n  if (done.ok()) unfinished_.clear();\n")],
        "checkpoint_tests", "ReplacedFiles.*"),
    Bug("unknown_folder_claimed", "server/rpc/parts_claim.cc", [("if (!steps->empty()) {", "if (steps->size() > 1'000'000) {")],
        "server_rpc_tests", "ShardHostTest.AFolderOfAnUnknownRunIsRefusedAndStaysAsItIs"),
    Bug("full_disk_ends_a_rollback", "server/rpc/run_writer.cc",
        [("return persist != nullptr && !persist->record.finished && may_retry_;",
          "return persist != nullptr && persist->record.finished && may_retry_;")],
        "server_rpc_tests", "RecoveryTest.ATermThatCannotBeRecordedIsAnnouncedOnceItCan"),
    Bug("silent_disk_counts_as_damaged", "server/rpc/run_folder.cc",
        [("if (absl::IsUnavailable(usable)) {", "if (absl::IsUnauthenticated(usable)) {")],
        "server_rpc_tests", "RunFolderTest.ACheckpointThatCannotBeReadNowIsNotTakenForDamaged"),
    # Checkpoints.
    Bug("slow_rack_blocks_later_checkpoints", TRACKER,
        [("return under_way_ != 0 && !all_there_ && part.term == term_", "return !options_.in_rack && under_way_ != 0 && !all_there_ && part.term == term_"),
         ("if (all_there_ && part.step > under_way_) KeepEarly(part);", "")],
        "relay_core_tests", "SlowRackTest.*"),
    Bug("missing_part_awaited_forever", TRACKER,
        [("return !all_there_ && now - waits_since_ > options_.patience;",
          "return options_.in_lockstep && !all_there_ && now - waits_since_ > options_.patience;")],
        "server_coordinator_tests", "*Scenarios*/checkpoints"),
    Bug("newcomer_withdraws_rank_0", "server/coordinator/elastic_members.cc",
        [("run_.checkpoints().WithdrawRank(rank, now);", "run_.checkpoints().WithdrawRank(0, now);")],
        "server_coordinator_tests", "*Scenarios*/elastic_checkpoints"),
    Bug("checkpoint_removed_under_its_reader", "server/coordinator/checkpoint_driver.cc",
        [("tracker_.Hold(std::move(in_use));", "in_use.clear();")],
        "server_coordinator_tests", "*Scenarios*/elastic_checkpoints"),
    Bug("unwritten_part_discards_a_checkpoint", "server/coordinator/checkpoint_reports.cc",
        [("if (part.unreadable) {  // The", "if (part.unreadable || (!part.error.empty() && part.step == run_.book().newest())) {  // The")],
        "simulate", kinds="elastic", shows="is good"),
    # Another number of workers.
    Bug("resumed_ranks_need_equal_codecs", "compress/feedback/residual_merge.cc",
        [("  a.spec = b.spec;\n", "")], "simulate", kinds="async,plans", shows="ranks had different chunks"),
    Bug("added_elastic_ranks_find_no_state", "worker/rpc/restore_source.cc",
        [("sender.rank >= source.world_size)", "sender.rank >= source.world_size + 1'000)")],
        "simulate", kinds="elastic", shows="is good"),
    # Which process counts.
    Bug("unheard_start_blocks_the_job", COORDINATOR,
        [("no acknowledgement follows.\n  run_.RunWhenStarted(now, out);\n", "no acknowledgement follows.\n")],
        "simulate", kinds="fixed,elastic,plans", shows="does not end"),
    Bug("generation_not_heard_yet_is_fenced", "server/shard/request_fence.cc",
        [("if (is_term_behind || IsGenerationBehind(exchange.sender)) {", "if (is_term_behind) {")],
        "server_shard_tests", "ShardRepair.ASuccessorWaitsForAShardThatDoesNotKnowItYet"),
    Bug("replaced_shard_ends_its_workers", "server/rpc/shard_agent.cc", [("host_->Withdraw(reason);", "host_->End(reason);")],
        "server_rpc_tests", "ShardAgentTest.ARefusedShardBreaksItsStreamsAndFencesNobody"),
    Bug("restarted_coordinator_keeps_its_number", "server/coordinator/job_run.cc",
        [("options.run->coordinator_incarnation + 1 : 1;", "options.run->coordinator_incarnation : 1;")],
        "server_coordinator_tests", "RepairTest.EachProcessGetsAHigherNumberThanAllBeforeAlsoOfEarlierCoordinators"),
    Bug("later_process_has_the_lower_number", "server/coordinator/shard_fleet.h",
        [("return first_number_ + ++processes_;", "return first_number_ + 1000000 - ++processes_;")],
        "simulate", kinds="fixed", shows="was refused"),
    Bug("other_version_may_join", "server/coordinator/admission.cc",
        [("if (version != options.software_version) {", "if (version.empty()) {")],
        "simulate", kinds="fixed", shows="of another version"),
    Bug("early_leave_counts_for_the_next_term", COORDINATOR,
        [("if (run_.IsOfEarlierTerm(leave.last.sender)) return StateForEarlierTerm(leave.last);\n  const uint32_t rank = leave.last.sender.rank;\n",
          "const uint32_t rank = leave.last.sender.rank;\n")],
        "server_coordinator_tests", "*Scenarios*/restart"),
    Bug("leaving_at_min_workers_fails_the_job", "server/coordinator/elastic_members.cc",
        [("roster.GiveUp(rank, why);", 'run_.Fail(absl::StrCat(roster.Describe(rank), " gave up: ", why), out);')],
        "simulate", kinds="elastic", shows="the job failed"),
    Bug("newcomer_delays_async_ranks", "server/shard/rank_clocks.cc",
        [("clock.counts = clock.counts || *clock.next >= least(bundle);", "clock.counts = true;")],
        "simulate", kinds="elastic_async", shows="other clocks"),
    Bug("lost_async_rank_still_counts", "server/shard/async_shard.cc",
        [("members_changed_ = options_.exchange.elastic();", "members_changed_ = false;")],
        "server_shard_tests", "ElasticAsyncShard.*NoLongerWaits*"),
    # Relays.
    Bug("relay_forgets_the_rate", "server/shard/bundle_work.cc", [("    sum->rate = work.open->rate();\n", "")],
        "simulate", kinds="relay", shows="another result"),
    Bug("sum_of_a_relay_is_not_divided", "server/shard/async_shard.cc",
        [("plan.aggregators[i]->Close(exchange.weight, part);", "plan.aggregators[i]->Close(1, part);")],
        "simulate", kinds="async_relay", shows="other parameters after"),
    Bug("plan_changes_codecs_inside_racks", "server/control/plan_maker.cc", [("  in_rack->entries.clear();\n", "")],
        "simulate", kinds="relay", shows="other bytes"),
    # Time-outs.
    Bug("end_does_not_wait_for_heartbeats", "server/rpc/server.cc",
        [("2 * options_.job.server.heartbeat_interval);", "absl::ZeroDuration());")],
        "server_rpc_tests", "ServerEnd.StaysUntilWhoAsksOncePerHeartbeatHasAsked"),
    Bug("stall_never_times_out", "server/coordinator/roster_leases.cc",
        [("heartbeat.since_progress >= options_.server.stall_timeout;", "heartbeat.since_progress >= 1000 * options_.server.stall_timeout;")],
        "server_coordinator_tests", "*Scenarios*/leases"),
    Bug("join_never_times_out", "server/coordinator/lease_watch.cc",
        [("options.server.rejoin_timeout : options.server.join_timeout;", "options.server.rejoin_timeout : absl::InfiniteDuration();")],
        "server_coordinator_tests", "*Scenarios*/membership"),
    Bug("lost_member_awaited_forever", "server/coordinator/lease_watch.cc", [("if (too_long) {", "if (too_long && fleet.size() > 1'000'000) {")],
        "server_coordinator_tests", "*Scenarios*/repair"),
    # Gradients.
    Bug("plan_to_none_loses_the_residual_on_a_gpu", "compress/compressor.cc",
        [("if (state.on_device) return encoder->has_residual(chunk);", "if (state.on_device) return false;")],
        "gpu_encoder_tests", "GpuEncoder.WhatAPlanToNoneFlushesStaysOwedWhereItsBundleIsRefused"),
    Bug("fragment_adopted_before_merge", "worker/torch/streamed_changes.cc",
        [("if (discard || merge_alpha_ == 0) {", "if (discard || merge_alpha_ >= 0) {")],
        "train_test", "StreamTest.TheResultIsMergedIntoWhatWasTrainedMeanwhile"),
    Bug("newcomer_sends_changes_of_another", "worker/train/model_trainer.cc",
        [("if (cursor->rank == joined().rank && joined().steps_behind == 0) {", "if (joined().world_size > 0) {")],
        "train_test", "StreamingRunTest.ANewcomerBeginsWithTheSharedParametersOnly"),
    Bug("late_work_joins_another_fragments_step", "server/shard/open_steps.cc",
        [("if (IsClosed(step, exchange.bundle) || !layouts_[exchange.bundle].Exchanges(step)) continue;",
          "if (IsClosed(step, exchange.bundle)) continue;")],
        "simulate", kinds="quorum", shows="a fragment that is not due"),
    Bug("late_work_without_its_weight", "server/shard/open_steps.cc",
        [("std::move(exchange.frames), exchange.work);", "std::move(exchange.frames));")],
        "simulate", kinds="quorum", shows="another result"),
    Bug("late_work_counts_twice", "server/shard/sync_shard_repair.cc",
        [("const bool known = exchange.step <= last.step;", "const bool known = exchange.step < last.step;")],
        "simulate", kinds="quorum", shows="late work comes first, and in order"),
    Bug("work_based_on_a_stale_version", "worker/core/pipeline.cc",
        [("exchange->base_version = results_.version(shard, bundle);",
          "exchange->base_version = results_.version(shard, bundle) > 3 ? 3 : results_.version(shard, bundle);")],
        "simulate", kinds="quorum", shows="is based on version"),
    Bug("leaver_takes_its_weight_along", "server/shard/open_bundle.cc",
        [("  if (!arrival.arrived) missing_ += step;", "  if (!arrival.arrived) missing_ += step;\n"
          "  if (!expected && arrival.arrived && !arrival.skipped && n_ > 1) n_ -= arrival.weight;")],
        "simulate", kinds="elastic", shows="divides by"),
    Bug("rest_of_late_work_lost", "worker/core/late_work.cc",
        [("bundle.returned.push_back({", "if (age > 1'000'000) bundle.returned.push_back({")],
        "worker_core_tests", "LateWork.TheNextContributionContainsTheRest"),
    Bug("late_work_counts_in_full", "server/shard/contribution_merge.cc",
        [("parts[i] *= double{", "parts[i] *= 1 + 0 * double{")],
        "server_shard_tests", "ContributionMerge.DampsALateContribution*"),
    Bug("late_member_is_no_member", "server/shard/sync_shard_close.cc",
        [(".members = closing_.ListedMembers(bundle, steps_.step())",
          ".members = open->complete() ? closing_.ListedMembers(bundle, steps_.step()) : std::vector<uint32_t>{0, 1}")],
        "server_shard_tests", "ElasticQuorum.AMemberThatIsLate*"),
    Bug("checkpoint_without_late_work", "worker/core/bundle_encoder.cc",
        [("  for (const ReturnedWork& work : pending_) {\n    for (size_t i = 0; i < work.chunks.size(); ++i) {\n      compress::AddToResidual",
          "  for (const ReturnedWork& work : pending_) {\n    for (size_t i = 1; i < work.chunks.size(); ++i) {\n      compress::AddToResidual")],
        "simulate", kinds="quorum", shows="does not hold its late work"),
    Bug("empty_step_moves_parameters", "worker/torch/data_parallel_results.cc",
        [("for (const uint32_t tensor : result->without_mean) {", "for (const uint32_t tensor : std::vector<uint32_t>()) {")],
        "train_test", "DataParallelTest.AParameterWithoutAMeanIsNotMovedByTheOptimizer"),
    Bug("contribution_left_out_still_counts", "server/shard/open_bundle.cc", [("{ n_ -= weight; };", "{ n_ -= 0 * weight; };")],
        "server_shard_tests", "GuardedShard.LeavesALarge*:OpenBundleTest.ScalesContributions*"),
    Bug("guard_takes_a_flipped_sign_for_agreement", "server/shard/contribution_guard.cc",
        [("std::clamp((along[i] - 1) / std::sqrt(others), -1.0, 1.0);", "std::abs((along[i] - 1) / std::sqrt(others));")],
        "server_shard_tests", "ContributionGuard.FindsAFlippedSign*"),
    Bug("outlier_escapes_in_other_chunks", "server/shard/contribution_guard.cc",
        [("if (step <= watching_until_ || HasOutlier(norms)) {", "if (HasOutlier(norms)) {")],
        "server_shard_tests", "ContributionGuard.WatchesWholeBundles*"),
    Bug("overflow_drops_finite_means", "server/shard/bundle_work.cc", [("if (updates == 0) {", "if (!all_finite.ok()) {")],
        "server_shard_tests", "Shard.TheFiniteMeansBesideOneThatOverflowsStayOwed:Shard.WithARule*"),
]
