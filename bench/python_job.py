# SPDX-License-Identifier: Apache-2.0
"""Runs benchmarks whose workers are Python processes: each worker is the benchmark itself with --worker."""
import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def add_options(parser):
    parser.add_argument("--python", default=ROOT / "build/python-venv/bin/python", type=pathlib.Path, help="with the packages sluice and torch")
    parser.add_argument("--http", default="off", help="HOST:PORT of the status page (default: off)")
    parser.add_argument("--logs", action="store_true", help="print the log of rank 0")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=pathlib.Path, help=argparse.SUPPRESS)


def run(options, script, workers, seed, flags):
    """The report that rank 0 of one job writes. Ends the program if a worker fails."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [str(options.python), script, "--worker", "--seed", str(seed), "--report", str(report), "--http", options.http, *flags]
        processes = []
        for rank in range(workers):
            log = (pathlib.Path(folder) / f"{rank}.log").open("w")
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(workers), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(workers),
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        statuses = [process.wait() for process in processes]
        log = (pathlib.Path(folder) / "0.log").read_text()
        if options.logs:
            print(log, file=sys.stderr)
        if any(statuses):
            sys.exit(f"{' '.join(command)}: the workers ended with {statuses}; rank 0 said:\n{log}")
        return json.loads(report.read_text())


class Results:
    """The reports of all runs, in a file from which a later call of the benchmark takes them."""

    def __init__(self, path):
        self._path = path
        self._done = json.loads(path.read_text()) if path and path.exists() else {}

    def get(self, key, measure):
        if key not in self._done:
            self._done[key] = measure()
            print(f"{key}: {self._done[key]}", file=sys.stderr, flush=True)
            if self._path:
                self._path.write_text(json.dumps(self._done, indent=1) + "\n")
        return self._done[key]
