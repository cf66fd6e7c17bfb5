#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the accuracy that relays cost and the bytes that they save: a job in racks against the same job without relays, with
one codec on the slow link, seed by seed.

JOB.yaml: examples/fashion-mnist-relay.yaml, with one shard. The flat job has no `relays` section, so that all its workers send
to the servers in the relays' codec. Bytes are those of frames at the servers, per step, for all workers or relays together,
between the first and the last status of the job. The first steps do not count, because they send parameters uncompressed.
With --points P it exits 1 if the mean accuracy in racks is lower by more than P points.
"""
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "e2e"))
from processes import free_port  # noqa: E402
from seed_sweep import ROOT, parser_of  # noqa: E402

LIMIT = 1800  # Seconds per run.
SETTLED = 10  # Steps.


def flat(text):
    """The job file without its `relays` section."""
    return re.sub(r"^relays:\n(?:[ \t]+.*\n|\n)*", "", text, flags=re.M)


def train(options, seed, racks):
    with tempfile.TemporaryDirectory(prefix="relay-") as name:
        folder = pathlib.Path(name)
        text = pathlib.Path(options.job).read_text()
        (folder / "job.yaml").write_text(text if racks else flat(text))
        http = free_port()
        command = [str(options.bin / "sluice"), "run", str(folder / "job.yaml"), "--quiet", "--http-listen", f"127.0.0.1:{http}", "--report",
                   str(folder / "report.json"), "--log-dir", str(folder / "logs")]
        for change in [*options.set, f"seed={seed}", f"steps={options.steps}"]:
            command += ["--set", change]
        with open(folder / "output", "w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            seen, end = [], time.monotonic() + LIMIT
            while process.poll() is None and time.monotonic() < end:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{http}/status.json", timeout=10) as answer:
                        shard = json.loads(answer.read())["this_shard"]
                    if shard["step"] >= SETTLED:
                        seen = [*seen[:1], shard]
                except (OSError, ValueError, urllib.error.URLError):
                    pass  # Not started yet, or already gone.
                time.sleep(0.2)
            process.kill()
        if process.wait() != 0 or len(seen) < 2 or seen[0]["step"] == seen[1]["step"]:
            sys.exit(f"{' '.join(command)} failed:\n{(folder / 'output').read_text()[-3000:]}")
        report = json.loads((folder / "report.json").read_text())
        first, last = seen

        def a_step(key):
            return (last[key] - first[key]) / (last["step"] - first["step"])

        return {"accuracy": 100 * report["test_accuracy"], "up": a_step("uplink_bytes"), "down": a_step("downlink_bytes")}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("job", nargs="?", metavar="JOB.yaml", default=str(ROOT / "examples/fashion-mnist-relay.yaml"))
    parser.add_argument("--steps", type=int, default=470)
    options = parser.parse_args()
    rows = []
    print("| seed | flat | in racks | points | kB a step up, flat | in racks | down, flat | in racks |\n|---|---|---|---|---|---|---|---|")

    def line(name, flat_run, rack_run):
        cells = [name, f"{flat_run['accuracy']:.2f} %", f"{rack_run['accuracy']:.2f} %",
                 f"{rack_run['accuracy'] - flat_run['accuracy']:+.2f}"]
        for way in ("up", "down"):
            cells += [f"{flat_run[way] / 1000:.1f}", f"{rack_run[way] / 1000:.1f} ({rack_run[way] / flat_run[way]:.2f})"]
        print("| " + " | ".join(cells) + " |", flush=True)

    for seed in options.seeds:
        rows.append([train(options, seed, racks) for racks in (False, True)])
        line(str(seed), *rows[-1])
    means = [{key: statistics.mean(row[i][key] for row in rows) for key in rows[0][i]} for i in (0, 1)]
    line("mean", *means)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if options.points is not None and means[1]["accuracy"] - means[0]["accuracy"] < -options.points:
        sys.exit(1)


if __name__ == "__main__":
    main()
