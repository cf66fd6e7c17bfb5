#!/usr/bin/env python3
"""What relays cost in accuracy and save in bytes: a job in racks against the same job flat, with one codec on the slow link,
seed by seed.

usage: relay.py [JOB.yaml] [--bin FOLDER] [--seeds 1,2,3] [--steps 470] [--set KEY=VALUE ...] [--points 0.5] [--json FILE]

JOB.yaml: examples/fashion-mnist-relay.yaml; of one shard. Flat it has no `relays` section, so that all its workers send to the
servers in the codec that relays do. Bytes are those of frames at the servers, all workers or relays together, per step.
With --points it exits 1 if the mean accuracy in racks is further than that below.
"""
import argparse
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

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 1800  # Seconds for a run.


def flat(text):
    """The job file without its `relays` section."""
    return re.sub(r"^relays:\n(?:[ \t]+.*\n|\n)*", "", text, flags=re.M)


def train(options, seed, racks):
    with tempfile.TemporaryDirectory(prefix="relay-") as name:
        folder = pathlib.Path(name)
        text = pathlib.Path(options.job).read_text()
        (folder / "job.yaml").write_text(text if racks else flat(text))
        http = free_port()
        command = [str(options.bin / "sluice"), "run", str(folder / "job.yaml"), "--quiet", "--http", f"127.0.0.1:{http}", "--json",
                   str(folder / "report.json"), "--log-dir", str(folder / "logs")]
        for change in [*options.set, f"seed={seed}", f"steps={options.steps}"]:
            command += ["--set", change]
        with open(folder / "output", "w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            seen, end = None, time.monotonic() + LIMIT
            while process.poll() is None and time.monotonic() < end:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{http}/status.json", timeout=10) as answer:
                        shard = json.loads(answer.read())["this_shard"]
                    seen = shard if shard["step"] > 0 else seen
                except (OSError, ValueError, urllib.error.URLError):
                    pass  # Not there yet, or gone.
                time.sleep(0.2)
            process.kill()
        if process.wait() != 0 or seen is None:
            sys.exit(f"{' '.join(command)} failed:\n{(folder / 'output').read_text()[-3000:]}")
        report = json.loads((folder / "report.json").read_text())
        return {"accuracy": 100 * report["test_accuracy"], "up": seen["uplink_bytes"] / seen["step"],
                "down": seen["downlink_bytes"] / seen["step"]}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("job", nargs="?", default=str(HERE.parent / "examples/fashion-mnist-relay.yaml"))
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent / "build/release/bin")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=470)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--points", type=float)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    print("| seed | flat | in racks | points | kB a step up, flat | in racks | down, flat | in racks |\n|---|---|---|---|---|---|---|---|")

    def line(name, flat_run, rack_run):
        cells = [name, f"{flat_run['accuracy']:.2f} %", f"{rack_run['accuracy']:.2f} %",
                 f"{rack_run['accuracy'] - flat_run['accuracy']:+.2f}"]
        for way in ("up", "down"):
            cells += [f"{flat_run[way] / 1000:.1f}", f"{rack_run[way] / 1000:.1f} ({rack_run[way] / flat_run[way]:.2f})"]
        print("| " + " | ".join(cells) + " |", flush=True)

    for seed in map(int, options.seeds.split(",")):
        rows.append([train(options, seed, racks) for racks in (False, True)])
        line(str(seed), *rows[-1])
    means = [{key: statistics.mean(row[i][key] for row in rows) for key in rows[0][i]} for i in (0, 1)]
    line("mean", *means)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))
    if options.points is not None and means[1]["accuracy"] - means[0]["accuracy"] < -options.points:
        sys.exit(1)


if __name__ == "__main__":
    main()
