#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the chart's Grafana dashboards from the panels below: 20 lines here make 1,000 lines of JSON there.

usage: tools/make_dashboards.py [--check]     --check: writes nothing; exits 1 if a file differs from the output
"""
import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "helm/sluice/dashboards"
JOB = 'training_job="$training_job"'
RATE = "[$__rate_interval]"


def panel(title, unit, help_text, *queries, kind="timeseries", stacked=False):
    """queries: (PromQL, legend). unit: Grafana's name for it. stacked: areas on top of each other."""
    return {"title": title, "unit": unit, "help": help_text, "queries": queries, "kind": kind, "stacked": stacked}


def rate(metric, by="", labels=""):
    inner = f"rate({metric}{{{JOB}{',' + labels if labels else ''}}}{RATE})"
    return f"sum by ({by}) ({inner})" if by else f"sum ({inner})"


def mean_of(histogram, by="shard"):
    return f"{rate(histogram + '_sum', by)} / {rate(histogram + '_count', by)}"


def ratio(way):
    return f"{rate(f'sluice_{way}_uncompressed_bytes_total')} / {rate(f'sluice_{way}_bytes_total')}"


STEPS_PER_SECOND = f"min (deriv(sluice_step{{{JOB}}}{RATE}))"
PHASE = panel("Phase", "none", "The job's phase, from shard 0.", (f"sluice_job_phase{{{JOB}}} == 1", "{{phase}}"), kind="stat")
STEP = panel("Step", "none", "The newest step of which every shard has closed every bundle.", (f"min (sluice_step{{{JOB}}})", "step"), kind="stat")
SPEED = panel("Steps per second", "ops", "Of the slowest shard.", (STEPS_PER_SECOND, "steps"))
LOSS = panel("Loss", "none", "Each worker's last report.", (f"sluice_worker_loss{{{JOB}}}", "rank {{rank}}"))
RATIOS = panel("Compression ratio", "none", "Bytes of the same data in dense fp32 divided by bytes sent. 100 means a hundredth of the bytes.",
               (ratio("uplink"), "up"), (ratio("downlink"), "down"))
BYTES = panel("Bytes per second", "Bps", "Frames, without the overhead of gRPC and TCP.",
              (rate("sluice_uplink_bytes_total"), "up"), (rate("sluice_downlink_bytes_total"), "down"))
WAIT = panel("Waiting for the last worker", "s",
             "Time from a bundle's first contribution to its last. If it is close to a step's time, one worker holds up the others.",
             (mean_of("sluice_aggregation_wait_seconds"), "shard {{shard}}, mean"),
             (f"histogram_quantile(0.95, {rate('sluice_aggregation_wait_seconds_bucket', 'le')})", "all, 95 of 100"))
PARTS = panel("Parts of a step", "s", "Mean over workers: compute (and the rest), waiting for the worker's own encoder, exchange (on links, at "
              "the shards, waiting for other workers), decoding.",
              (f"{rate('sluice_step_exposed_seconds_total', 'part')} / scalar({rate('sluice_timed_steps_total')})", "{{part}}"), stacked=True)
LOST = panel("Lost processes", "none", "Processes whose lease has expired and that the job waits for.", (f"sluice_missing_processes{{{JOB}}}", "{{kind}}s"), kind="stat")

QUALITY = [
    panel("Residual norm over gradient norm", "none",
          "Size of the error-feedback residual in gradients: 10 means that sent values are about ten steps old. If it grows without limit, the codec is "
          "too coarse for the learning rate.", (f"sluice_residual_gradient_norm_ratio{{{JOB}}}", "rank {{rank}}")),
    panel("Share of energy sent", "percentunit", "Sent share of the gradient plus the residual, as a sum of squares.",
          (f"sluice_captured_energy_ratio{{{JOB}}}", "rank {{rank}}")),
    panel("Cosine between sent values and gradient", "none", "1 means the same direction. It is low with sparse codecs, because many sent values are from earlier steps.",
          (f"sluice_sent_gradient_cosine{{{JOB}}}", "rank {{rank}}")),
]

DASHBOARDS = {
    "overview": ("Sluice: overview", [
        PHASE, STEP, LOST,
        panel("Newest checkpoint", "s", "Age of the newest complete job checkpoint.",
              (f"sluice_checkpoint_age_seconds{{{JOB}}}", "age"), kind="stat"),
        LOSS, panel("Validation metric", "percentunit", "Share of correct test samples at the last test.",
                    (f"sluice_validation_metric{{{JOB}}}", "rank {{rank}}")),
        SPEED, PARTS, RATIOS, BYTES, WAIT,
        panel("Members", "none", "Workers by state.", (f"sluice_members{{{JOB}}}", "{{state}}")),
        panel("Membership changes", "none", "Generation: rises with each change of the members. Lost: workers that the job continued without (elastic).",
              (f"sluice_generation{{{JOB}}}", "generation"), (f"sluice_lost_workers_total{{{JOB}}}", "lost")),
        panel("Residuals of lost workers", "none", "Sum of squares of the unsent values of workers that the job continued without (elastic), from their last measurement.",
              (f"sluice_lost_residual_energy_total{{{JOB}}}", "lost")),
        panel("Recoveries", "none", "Since this coordinator started: repairs in place, and rollbacks to a checkpoint.",
              (f"sluice_repairs_total{{{JOB}}}", "repairs"), (f"sluice_rollbacks_total{{{JOB}}}", "rollbacks"),
              (f"sluice_term{{{JOB}}}", "term")),
        panel("Effect of the next loss", "none", "replay: a repair in place; rollback: a return to a checkpoint.",
              (f"sluice_recovery_class{{{JOB}}} == 1", "{{class}}"), kind="stat"),
        panel("Shards ready", "none", "Shards that have their part of the job, by program version.",
              (f"sum by (version) (sluice_ready{{{JOB}}} * on (instance, shard) group_right sluice_build_info{{{JOB}}})", "{{version}}"), kind="stat"),
    ]),
    "compression": ("Sluice: compression", [
        RATIOS, LOSS, *QUALITY,
        panel("Measured chunks", "none", "Chunks of trained tensors in the three panels above. Chunks with ef21 and diana are not measured.",
              (f"sluice_quality_chunks{{{JOB}}}", "rank {{rank}}")),
        panel("Time spent encoding", "percentunit", "Share of a worker's time in which its encoder is busy, also during backward.",
              (rate("sluice_encode_wall_seconds_total", "rank"), "rank {{rank}}")),
        panel("Downlink residuals", "none", "Sum of squares of the values not yet sent to the workers. If it grows without limit, the codec is too coarse.",
              (f"sluice_downlink_residual_energy{{{JOB}}}", "shard {{shard}}")),
        panel("Contributions outside any mean", "percentunit", "Not finite, or their worker was out of data.",
              (f"{rate('sluice_skipped_contributions_total')} / {rate('sluice_contributions_total')}", "skipped")),
        panel("Bundles without a result", "ops", "No worker contributed to them, or their sum overflowed.",
              (rate("sluice_empty_bundles_total", "reason"), "{{reason}}")),
        panel("Staleness", "none", "Updates between the parameters that a contribution was computed on and its own update (asynchronous modes).",
              (mean_of("sluice_staleness_steps"), "shard {{shard}}, mean"),
              (f"histogram_quantile(0.95, {rate('sluice_staleness_steps_bucket', 'le')})", "all, 95 of 100")),
        panel("Norm of contributions", "none", "Norm of a worker's contribution divided by the median of all workers (jobs with a guard).",
              (f"max by (rank) (sluice_contribution_norm_ratio{{{JOB}}})", "rank {{rank}}")),
        panel("Direction of contributions", "none", "Mean cosine to the sum of the other workers' contributions (jobs with a guard). Below 0: the worker opposes the others.",
              (f"min by (rank) (sluice_contribution_cosine{{{JOB}}})", "rank {{rank}}")),
        panel("Contributions that the guard changed", "ops", "Outliers, and contributions that were clipped or left out, by worker.",
              (rate("sluice_guarded_contributions_total", "rank, kind"), "rank {{rank}} {{kind}}")),
        panel("Shares of a result", "percentunit", "Share of each worker's contribution in the newest result (jobs that merge by weights or age).",
              (f"max by (rank) (sluice_merge_share{{{JOB}}})", "rank {{rank}}")),
        panel("Correlation of outer changes", "none", "Cosine between successive mean changes (local_sgd). Momentum amplifies changes in the same direction most.",
              (f"sluice_outer_correlation{{{JOB}}}", "shard {{shard}}")),
        panel("Gain of the outer optimizer", "none", "Movement of the parameters for each unit of mean change (local_sgd).",
              (f"sluice_outer_gain{{{JOB}}}", "shard {{shard}}")),
        panel("Publications", "ops", "Published updates of bundles, and replies with the parameters themselves (asynchronous modes).",
              (rate("sluice_publications_total"), "published"), (rate("sluice_exact_results_total"), "exact")),
        panel("Bundles", "ops", "Closed bundles, bundles closed without some worker, and late contributions that count in a later step (jobs with a quorum).",
              (rate("sluice_bundles_closed_total"), "closed"), (rate("sluice_quorum_bundles_total"), "by quorum"),
              (rate("sluice_late_contributions_total"), "late contributions"),
              (rate("sluice_late_exchanges_total"), "exchanges that they missed")),
    ]),
    "network": ("Sluice: network and control", [
        BYTES, WAIT,
        panel("Bytes per second, by shard", "Bps", "Unequal rates mean that parameters are unevenly spread.",
              (rate("sluice_uplink_bytes_total", "shard"), "shard {{shard}} up"), (rate("sluice_downlink_bytes_total", "shard"), "shard {{shard}} down")),
        panel("Link rates", "Bps", "Rate of each worker's link to each shard while it is busy, over the last steps, without latency.",
              (f"sluice_link_rate_bytes_per_second{{{JOB}}}", "rank {{rank}} shard {{shard}} {{direction}}")),
        panel("Link latency", "s", "One way: half of the shortest round trip of a small message on an idle link.",
              (f"sluice_link_latency_seconds{{{JOB}}}", "rank {{rank}} shard {{shard}} {{direction}}")),
        panel("Queue delay of requests", "s", "Time from a request's arrival at a shard until it is checked and summed.",
              (mean_of("sluice_queue_delay_seconds"), "shard {{shard}}, mean"),
              (f"histogram_quantile(0.95, {rate('sluice_queue_delay_seconds_bucket', 'le')})", "all, 95 of 100")),
        panel("Parameters by shard", "none", "", (f"sluice_elements{{{JOB}}}", "shard {{shard}}"), kind="stat"),
        panel("Processor time by stage", "none", "Cores that a server uses in each stage of exchanges. The time of gRPC and most of the kernel's are in no stage.",
              (rate("sluice_stage_cpu_seconds_total", "shard, stage"), "shard {{shard}} {{stage}}")),
        panel("Compression plans", "none", "The newest plan, and the plans made since this coordinator started. No data with control.policy fixed.",
              (f"sluice_plan_id{{{JOB}}}", "plan"), (f"sluice_plans_total{{{JOB}}}", "made")),
        panel("Planned bytes per step", "bytes", "Frames of each worker in one step, and results to each, as control estimates them for the newest plan.",
              (f"sluice_plan_uplink_bytes{{{JOB}}}", "rank {{rank}} up"), (f"sluice_plan_downlink_bytes{{{JOB}}}", "down")),
        panel("Refused and repeated", "ops", "Refused requests by answer, and contributions that were sent again.",
              (rate("sluice_contributions_refused_total", "reason"), "{{reason}}"), (rate("sluice_repeats_total"), "repeats")),
        panel("Followers", "none", "Followers connected to shards and relays (jobs with followers).",
              (f"sluice_followers{{{JOB}}}", "shard {{shard}}"), kind="stat"),
        panel("Lag of followers", "none", "Steps from the version of the follower that lags most to the newest version, and the step of that version.",
              (f"sluice_follower_lag_steps{{{JOB}}}", "shard {{shard}} lag"), (f"sluice_follower_version{{{JOB}}}", "shard {{shard}} newest")),
        panel("Versions for followers", "ops", "Versions that followers could read, versions left out because encoding takes too long, and complete copies made.",
              (rate("sluice_follower_versions_total"), "versions"), (rate("sluice_follower_skipped_versions_total"), "left out"),
              (rate("sluice_follower_anchors_total"), "anchors")),
        panel("Bytes to followers", "Bps", "Patches and anchors.", (rate("sluice_follower_bytes_total", "shard"), "shard {{shard}}")),
        panel("Memory of results", "bytes", "Results kept for workers that have not acknowledged them and for repairs, their limit, and frames not yet summed.",
              (f"sluice_result_log_bytes{{{JOB}}}", "shard {{shard}} results"), (f"sluice_result_log_limit_bytes{{{JOB}}}", "shard {{shard}} limit"),
              (f"sluice_pending_bytes{{{JOB}}}", "shard {{shard}} frames")),
        panel("Steps kept for repairs", "none", "Number of newest steps of which all results are kept.",
              (f"sluice_step{{{JOB}}} - on (instance, shard) (sluice_replay_first_step{{{JOB}}} > 0) + 1", "shard {{shard}}")),
    ]),
    "workers": ("Sluice: workers", [
        panel("Step of each worker", "none", "", (f"sluice_worker_step{{{JOB}}}", "rank {{rank}}")),
        panel("Lag behind the fastest worker", "none", "In steps, from heartbeats. In sync all workers are at the same step, and the panel shows the age of heartbeats.",
              (f"scalar(max (sluice_worker_step{{{JOB}}})) - sluice_worker_step{{{JOB}}}", "rank {{rank}}")),
        LOSS, LOST, WAIT, PARTS,
        panel("Loss, from the worker", "none", "Mean since its last report.", (f"sluice_train_loss{{{JOB}}}", "rank {{rank}}")),
        panel("Step, from the worker", "none", "From its last report, about a second ago.", (f"sluice_train_step{{{JOB}}}", "rank {{rank}}")),
        panel("Epoch", "none", "From 0.", (f"max (sluice_train_epoch{{{JOB}}})", "epoch"), kind="stat"),
        panel("Samples per second", "none", "", (rate("sluice_samples_total", "rank"), "rank {{rank}}")),
        panel("Computing", "percentunit", "Share of each worker's time. The worker that computes most holds up the others.",
              (rate("sluice_step_exposed_seconds_total", "rank", 'part="compute"'), "rank {{rank}}")),
        panel("Waiting for other workers", "percentunit", "Share of time in which everything that a worker had to send was at the shards and waited there for other workers.",
              (rate("sluice_worker_waited_seconds_total", "rank"), "rank {{rank}}")),
        panel("Late workers, by cause", "percentunit", "Delay of each worker's last frames after the first worker's, as a share of time: longer computing, or the rest.",
              (rate("sluice_worker_late_seconds_total", "rank, cause"), "rank {{rank}} {{cause}}")),
        panel("Exchange of a step", "s", "From a worker's first frame to its last result.",
              (mean_of("sluice_exchange_duration_seconds", "rank"), "rank {{rank}}, mean"),
              (f"histogram_quantile(0.95, {rate('sluice_exchange_duration_seconds_bucket', 'le')})", "all, 95 of 100")),
        panel("Bytes per second, by worker", "Bps", "Messages of streams, without the overhead of gRPC and TCP.",
              (rate("sluice_worker_uplink_bytes_total", "rank"), "rank {{rank}} up"),
              (rate("sluice_worker_downlink_bytes_total", "rank"), "rank {{rank}} down")),
        panel("Compression ratio, by worker", "none", "Dense fp32 bytes divided by bytes of messages.",
              (f"{rate('sluice_worker_uplink_uncompressed_bytes_total', 'rank')} / {rate('sluice_worker_uplink_bytes_total', 'rank')}", "rank {{rank}} up"),
              (f"{rate('sluice_worker_downlink_uncompressed_bytes_total', 'rank')} / {rate('sluice_worker_downlink_bytes_total', 'rank')}", "rank {{rank}} down")),
        panel("In flight", "bytes", "Sent frames that no shard has admitted yet; at most server.window_bytes for each shard.",
              (f"sluice_in_flight_bytes{{{JOB}}}", "rank {{rank}}")),
        panel("Fragments in flight", "none", "Exchanges that have begun and whose result is not adopted: now, and the mean of those whose result has not arrived.",
              (f"sluice_fragments_in_flight{{{JOB}}}", "rank {{rank}}"),
              (rate("sluice_exchange_duration_seconds_sum", "rank"), "rank {{rank}}, mean")),
        panel("Skipped bundles", "ops", "A gradient was not finite.", (rate("sluice_skipped_bundles_total", "rank"), "rank {{rank}}")),
        panel("Cores used", "none", "Processor seconds of each process per second.", (rate("sluice_cpu_seconds_total", "rank", 'rank!=""'), "worker {{rank}}"),
              (rate("sluice_cpu_seconds_total", "shard", 'shard!=""'), "shard {{shard}}")),
        panel("Processor time of exchanges, by stage", "none", "Cores that a worker uses in each stage.",
              (rate("sluice_worker_stage_cpu_seconds_total", "rank, stage"), "rank {{rank}} {{stage}}")),
        panel("Checkpoints", "none", "Step of the newest complete job checkpoint, and of the job.",
              (f"sluice_checkpoint_step{{{JOB}}}", "checkpoint"), (f"min (sluice_step{{{JOB}}})", "job")),
        panel("Newest checkpoint abandoned", "none", "1 means that the newest attempt failed. The job continues.",
              (f"sluice_checkpoint_last_attempt_failed{{{JOB}}}", "abandoned"), kind="stat"),
        panel("Run record unwritten", "none", "1 means that the coordinator cannot write run.json, and the job waits for it.",
              (f"sluice_run_record_unwritten{{{JOB}}}", "unwritten"), kind="stat"),
        panel("Parts of checkpoints", "none", "Parts of shards, written and failed, since they started.",
              (f"sum by (result) (sluice_snapshots_total{{{JOB}}})", "{{result}}")),
        panel("Size of a shard's part", "bytes", "", (f"sluice_snapshot_bytes{{{JOB}}}", "shard {{shard}}")),
        panel("Time to write a shard's part", "s", "While training continues.", (f"sluice_snapshot_duration_seconds{{{JOB}}}", "shard {{shard}}")),
    ]),
}


STACK = {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 60}


def drawn(spec, number, x, y, width, height):
    result = {
        "id": number, "type": spec["kind"], "title": spec["title"], "description": spec["help"],
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": x, "y": y, "w": width, "h": height},
        "fieldConfig": {"defaults": {"unit": spec["unit"], **({"custom": STACK} if spec["stacked"] else {})}, "overrides": []},
        "targets": [{"refId": chr(ord("A") + i), "expr": query, "legendFormat": legend}
                    for i, (query, legend) in enumerate(spec["queries"])],
    }
    if spec["kind"] == "stat":
        names = all("{{" in legend for _, legend in spec["queries"])
        result["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "value_and_name" if names else "value"}
    else:
        result["options"] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return result


def dashboard(name, title, specs):
    panels, x, y = [], 0, 0
    for number, spec in enumerate(sorted(specs, key=lambda spec: spec["kind"] != "stat"), 1):
        width, height = (6, 4) if spec["kind"] == "stat" else (12, 8)
        if x + width > 24 or (panels and panels[-1]["gridPos"]["h"] != height and x):
            x, y = 0, y + panels[-1]["gridPos"]["h"]
        panels.append(drawn(spec, number, x, y, width, height))
        x += width
    return {
        "uid": f"sluice-{name}", "title": title, "tags": ["sluice"], "schemaVersion": 39, "version": 1, "editable": True,
        "refresh": "10s", "time": {"from": "now-1h", "to": "now"}, "timezone": "browser",
        "links": [{"type": "dashboards", "title": "Sluice", "tags": ["sluice"], "includeVars": True, "keepTime": True}],
        "templating": {"list": [
            {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
            {"name": "training_job", "label": "Job", "type": "query", "refresh": 2, "sort": 1,
             "datasource": {"type": "prometheus", "uid": "${datasource}"},
             "query": {"query": "label_values(sluice_build_info, training_job)", "refId": "jobs"}},
        ]},
        "panels": panels,
    }


def main(arguments):
    wrong = []
    texts = {FOLDER / f"{name}.json": json.dumps(dashboard(name, *content), indent=1) + "\n" for name, content in DASHBOARDS.items()}
    for path, text in texts.items():
        if "--check" not in arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            wrong.append(path.name)
    wrong += [path.name for path in FOLDER.glob("*.json") if path not in texts]
    if wrong:
        print(f"differs from the output of tools/make_dashboards.py: {', '.join(sorted(wrong))}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
