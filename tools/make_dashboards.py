#!/usr/bin/env python3
"""Writes the chart's Grafana dashboards from the panels below, so that 20 lines here are 1,000 lines of JSON there.

usage: tools/make_dashboards.py [--check]     --check: write nothing; 1 where a file is not what this would write
"""
import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "helm/sluice/dashboards"
JOB = 'training_job="$training_job"'
RATE = "[$__rate_interval]"


def panel(title, unit, help_text, *queries, kind="timeseries"):
    """queries: (PromQL, legend). Unit: Grafana's name of it."""
    return {"title": title, "unit": unit, "help": help_text, "queries": queries, "kind": kind}


def rate(metric, by="", labels=""):
    inner = f"rate({metric}{{{JOB}{',' + labels if labels else ''}}}{RATE})"
    return f"sum by ({by}) ({inner})" if by else f"sum ({inner})"


def mean_of(histogram, by="shard"):
    return f"{rate(histogram + '_sum', by)} / {rate(histogram + '_count', by)}"


def ratio(way):
    return f"{rate(f'sluice_{way}_uncompressed_bytes_total')} / {rate(f'sluice_{way}_bytes_total')}"


STEPS_PER_SECOND = f"min (deriv(sluice_step{{{JOB}}}{RATE}))"
PHASE = panel("Phase", "none", "What the job is doing, as shard 0 has it.", (f"sluice_job_phase{{{JOB}}} == 1", "{{phase}}"), kind="stat")
STEP = panel("Step", "none", "Steps of which every shard has closed every bundle.", (f"min (sluice_step{{{JOB}}})", "step"), kind="stat")
SPEED = panel("Steps a second", "ops", "Of the slowest shard.", (STEPS_PER_SECOND, "steps"))
LOSS = panel("Loss", "none", "As each worker reported it last.", (f"sluice_worker_loss{{{JOB}}}", "rank {{rank}}"))
RATIOS = panel("Compression ratio", "none", "Dense fp32 bytes of the same, over bytes sent: 100 means a hundredth of the bytes.",
               (ratio("uplink"), "up"), (ratio("downlink"), "down"))
BYTES = panel("Bytes a second", "Bps", "Frames, without what gRPC and TCP add.",
              (rate("sluice_uplink_bytes_total"), "up"), (rate("sluice_downlink_bytes_total"), "down"))
WAIT = panel("Waiting for the last worker", "s",
             "From a bundle's first contribution to its last. Near a step's time: one worker holds up the others.",
             (mean_of("sluice_aggregation_wait_seconds"), "shard {{shard}}, mean"),
             (f"histogram_quantile(0.95, {rate('sluice_aggregation_wait_seconds_bucket', 'le')})", "all, 95 of 100"))
LOST = panel("Lost processes", "none", "Whose lease is over, and that the job waits for.", (f"sluice_lost{{{JOB}}}", "{{kind}}s"), kind="stat")

DASHBOARDS = {
    "overview": ("Sluice: overview", [
        PHASE, STEP, LOST,
        panel("Newest checkpoint", "s", "Age of the newest complete job checkpoint.",
              (f"sluice_checkpoint_age_seconds{{{JOB}}}", "age"), kind="stat"),
        LOSS, SPEED, RATIOS, BYTES, WAIT,
        panel("Recoveries", "none", "Since this coordinator started: repairs in place, and returns to a checkpoint.",
              (f"sluice_repairs_total{{{JOB}}}", "repairs"), (f"sluice_rollbacks_total{{{JOB}}}", "rollbacks"),
              (f"sluice_term{{{JOB}}}", "term")),
        panel("What the next loss would mean", "none", "replay: repaired in place; rollback: back to a checkpoint.",
              (f"sluice_recovery_class{{{JOB}}} == 1", "{{class}}"), kind="stat"),
        panel("Shards ready", "none", "Shards that have their part of the job; and the programs' versions.",
              (f"sum by (version) (sluice_ready{{{JOB}}} * on (instance, shard) group_right sluice_build_info{{{JOB}}})", "{{version}}"), kind="stat"),
    ]),
    "compression": ("Sluice: compression", [
        RATIOS, LOSS,
        panel("What the downlink owes", "none", "Sum of squares of what results still owe to the workers. Growing without end: the codec is too coarse.",
              (f"sluice_downlink_residual_energy{{{JOB}}}", "shard {{shard}}")),
        panel("Contributions that are in no mean", "percentunit", "Not finite, or their worker was out of data.",
              (f"{rate('sluice_skipped_contributions_total')} / {rate('sluice_contributions_total')}", "skipped")),
        panel("Bundles without a result", "ops", "Nobody contributed to them, or their sum overflowed.",
              (rate("sluice_empty_bundles_total", "reason"), "{{reason}}")),
        panel("Staleness", "none", "Updates between the parameters that a contribution was made on and its own (async and ssp).",
              (mean_of("sluice_staleness_steps"), "shard {{shard}}, mean"),
              (f"histogram_quantile(0.95, {rate('sluice_staleness_steps_bucket', 'le')})", "all, 95 of 100")),
        panel("Publications", "ops", "Times that bundles' updates were published, and answers with the parameters themselves (async and ssp).",
              (rate("sluice_publications_total"), "published"), (rate("sluice_exact_results_total"), "exact")),
        panel("Bundles", "ops", "Closed; closed without some worker; and work that came late and is in a later step (jobs with a quorum).",
              (rate("sluice_bundles_closed_total"), "closed"), (rate("sluice_quorum_bundles_total"), "by quorum"),
              (rate("sluice_late_contributions_total"), "late work")),
    ]),
    "network": ("Sluice: network and shards", [
        BYTES, WAIT,
        panel("Bytes a second, by shard", "Bps", "Unequal ones: parameters are unequally spread.",
              (rate("sluice_uplink_bytes_total", "shard"), "shard {{shard}} up"), (rate("sluice_downlink_bytes_total", "shard"), "shard {{shard}} down")),
        panel("Parameters by shard", "none", "", (f"sluice_elements{{{JOB}}}", "shard {{shard}}"), kind="stat"),
        panel("Processor time by stage", "none", "Cores of a server that are in each stage of exchanges; gRPC and most of the kernel's is in none.",
              (rate("sluice_stage_seconds_total", "shard, stage"), "shard {{shard}} {{stage}}")),
        panel("Compression plans", "none", "The newest plan, and plans made since this coordinator started; none with control.policy fixed.",
              (f"sluice_plan_id{{{JOB}}}", "plan"), (f"sluice_plans_total{{{JOB}}}", "made")),
        panel("Refused and repeated", "ops", "Requests not admitted, by answer, and contributions sent again.",
              (rate("sluice_contributions_refused_total", "reason"), "{{reason}}"), (rate("sluice_repeats_total"), "repeats")),
        panel("Memory that results take", "bytes", "Kept for those that have not acknowledged them and for repairs; the limit; and frames not yet summed.",
              (f"sluice_result_log_bytes{{{JOB}}}", "shard {{shard}} results"), (f"sluice_result_log_limit_bytes{{{JOB}}}", "shard {{shard}} limit"),
              (f"sluice_held_bytes{{{JOB}}}", "shard {{shard}} frames")),
        panel("Steps that repairs reach back", "none", "Since which step all results are kept.",
              (f"sluice_step{{{JOB}}} - on (instance, shard) (sluice_results_from{{{JOB}}} > 0) + 1", "shard {{shard}}")),
    ]),
    "workers": ("Sluice: workers", [
        panel("Step of each worker", "none", "", (f"sluice_worker_step{{{JOB}}}", "rank {{rank}}")),
        panel("Behind the foremost", "none", "Steps; in sync at most one.",
              (f"scalar(max (sluice_worker_step{{{JOB}}})) - sluice_worker_step{{{JOB}}}", "rank {{rank}}")),
        LOSS, LOST, WAIT,
        panel("Checkpoints", "none", "Step of the newest complete job checkpoint, and of the job.",
              (f"sluice_checkpoint_step{{{JOB}}}", "checkpoint"), (f"min (sluice_step{{{JOB}}})", "job")),
    ]),
}


def drawn(spec, number, x, y, width, height):
    result = {
        "id": number, "type": spec["kind"], "title": spec["title"], "description": spec["help"],
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": x, "y": y, "w": width, "h": height},
        "fieldConfig": {"defaults": {"unit": spec["unit"]}, "overrides": []},
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
        print(f"not what tools/make_dashboards.py writes: {', '.join(sorted(wrong))}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
