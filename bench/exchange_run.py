# SPDX-License-Identifier: Apache-2.0
"""Single measurements of exchanges, over shaped links or loopback, and the command lines of exchange_goals.py and
exchange_sweep.py, which combine them.

Programs inside of bench/shaped.sh find the links in their environment. Without it, everything runs on loopback.
"""
from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 900  # Seconds per measurement.
TCP_PORT = 5300


class Failed(RuntimeError):
    """A failed measurement and its reason."""


def end_with_parent() -> None:
    """Call in a child: kills it when its parent ends for any reason, and with shaped.sh all processes that it started."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def run(command: list[str], limit: float = LIMIT) -> str:
    """Output of the command. Raises Failed with the end of its error output if it fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit,
                              preexec_fn=end_with_parent)
    except FileNotFoundError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(command[:4])} ... did not end within {limit:.0f} s") from None
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["it said nothing"]
        raise Failed(f"{' '.join(command[:4])} ... ended with status {done.returncode}: {words[0]}")
    return done.stdout


def over_links(workers: int, shards: int, rate: str, command: list[str]) -> None:
    """Runs the command in the bridge's namespace of new links, with inherited output."""
    shaped = [str(HERE / "shaped.sh"), "--workers", str(workers), "--shards", str(shards), "--rate", rate]
    status = subprocess.run([*shaped, "--exec", *command], preexec_fn=end_with_parent).returncode
    if status != 0:
        raise Failed(f"{' '.join(shaped)} --exec {pathlib.Path(command[1]).name} ended with status {status}")


def of_links(name: str) -> list[str]:
    return os.environ[name].split(",")


def has_links() -> bool:
    return "SHAPED_RATE" in os.environ


def exchange(folder_of_programs: pathlib.Path, workers: int, shards: int, *arguments: str) -> dict:
    """The JSON of one `sluice bench exchange`."""
    links: list[str] = []
    if has_links():
        links = ["--wrap-worker", "ip netns exec w{}", "--wrap-server", "ip netns exec s{}", "--server-hosts",
                 ",".join(of_links("SHAPED_SERVER_HOSTS")[:shards])]
        if os.environ["SHAPED_RATE"] != "none":
            links += ["--link-rate", os.environ["SHAPED_RATE"]]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "exchange.json"
        run([str(folder_of_programs / "sluice"), "bench", "exchange", "--workers", str(workers), "--shards", str(shards),
             *links, "--report", str(path), *arguments])
        return json.loads(path.read_text())


def ddp(workers: int, *arguments: str) -> dict:
    """The JSON of one peers/ddp.py."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "ddp.json"
        run([sys.executable, str(HERE / "peers/ddp.py"), "--workers", str(workers), "--json", str(path), *arguments])
        return json.loads(path.read_text())


def inside(name: str) -> list[str]:
    return ["ip", "netns", "exec", name] if has_links() else []


def raw_tcp(workers: int, shards: int, seconds: int = 4) -> dict:
    """Runs iperf3 between every worker and every shard at once, in both directions, like an exchange. Returns bits per
    second through the busiest link in its busier direction. Ignores the first second, in which not all of them run yet."""
    hosts = of_links("SHAPED_SERVER_HOSTS") if has_links() else ["127.0.0.1"] * shards
    servers, clients = [], []
    try:
        for shard in range(shards):
            for worker in range(workers):
                port = str(TCP_PORT + shard * workers + worker)
                server = subprocess.Popen([*inside(f"s{shard}"), "iperf3", "-s", "-1", "--forceflush", "-p", port],
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                servers.append(server)
                if not any("listening" in line for line in server.stdout):
                    raise Failed(f"iperf3 does not listen on port {port}")
                clients.append((worker, shard, [*inside(f"w{worker}"), "iperf3", "-J", "--bidir", "-c", hosts[shard],
                                                "-p", port, "-O", "1", "-t", str(seconds)]))
        running = [(worker, shard, subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
                   for worker, shard, command in clients]
        links: dict[tuple[str, int, str], float] = {}
        for worker, shard, client in running:
            end = json.loads(client.communicate(timeout=LIMIT)[0]).get("end", {})
            if "sum_received" not in end:
                raise Failed(f"iperf3 from worker {worker} to shard {shard} reported no figures")
            for direction, key in (("up", "sum_received"), ("down", "sum_received_bidir_reverse")):
                for link in (("worker", worker, direction), ("shard", shard, direction)):
                    links[link] = links.get(link, 0) + end[key]["bits_per_second"]
        return {"bits_per_second": max(links.values())}
    except FileNotFoundError:
        raise Failed("iperf3 is missing: apt-get install iperf3") from None
    finally:
        for server in servers:
            server.kill()
            server.wait()


@dataclasses.dataclass
class Quiet:
    """Measures the share of the machine that other programs use. Times are only reliable if this share is small."""
    begun: float = dataclasses.field(default_factory=time.monotonic)
    busy: float = dataclasses.field(default_factory=lambda: busy_seconds())
    own: float = dataclasses.field(default_factory=lambda: own_seconds())

    def result(self) -> dict:
        wall = time.monotonic() - self.begun
        others = (busy_seconds() - self.busy) - (own_seconds() - self.own)
        return {"load": os.getloadavg()[0], "others": max(0.0, others / (wall * (os.cpu_count() or 1)))}


def busy_seconds() -> float:
    """Seconds of all processors in programs, without interrupts, which process packets."""
    user, nice, system = pathlib.Path("/proc/stat").read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Processor seconds of this process and of all children that it has waited for."""
    return sum(usage.ru_utime + usage.ru_stime
               for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def machine() -> dict:
    text = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*:\s*(.*)", text)
    return {"processor": model[1] if model else "unknown", "cores": os.cpu_count(), "kernel": os.uname().release}


def gpt_like(blocks: int, words: int) -> str:
    """A table of a small GPT with width 768. 12 blocks and 18,688 words give 100.2 M elements."""
    lines = [f"wte.weight {words} 768", "wpe.weight 1024 768"]
    for i in range(blocks):
        for name, rows, columns in (("attn.c_attn", 768, 2304), ("attn.c_proj", 768, 768), ("mlp.c_fc", 768, 3072),
                                    ("mlp.c_proj", 3072, 768)):
            lines += [f"h.{i}.{name}.weight {rows} {columns}", f"h.{i}.{name}.bias {columns}"]
        for norm in ("ln_1", "ln_2"):
            lines += [f"h.{i}.{norm}.weight 768", f"h.{i}.{norm}.bias 768"]
    return "\n".join(lines + ["ln_f.weight 768", "ln_f.bias 768"]) + "\n"


def small_tensors(count: int, elements: int) -> str:
    return "".join(f"t{i} {elements}\n" for i in range(count))


# --- Command lines ---

def parse(parser: argparse.ArgumentParser, what: str, names: Iterable[str]) -> argparse.Namespace:
    """Parses the options of `parser` and the options that both programs share. The result's `names` are the selected
    elements of `names`; `what` is the kind of a name."""
    names = list(names)
    parser.add_argument("names", nargs="*", metavar=what.upper(), help=f"of these: {', '.join(names)}; all")
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent / "build/release/bin", metavar="DIR",
                        help="folder of sluice and sluice-server [build/release/bin]")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds of turns [3]")
    parser.add_argument("--repeats", type=int, default=20, metavar="N", help="compressed exchanges per turn [20]")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    options.names = options.names or names
    for name in options.names:
        if name not in names:
            parser.error(f'no such {what}: "{name}"; there are {", ".join(names)}')
    return options


def check_programs(options: argparse.Namespace) -> None:
    for name in ("sluice", "sluice-server"):
        if not (options.bin / name).exists():
            raise Failed(f"there is no {name} in {options.bin}: ninja -C build/release sluice sluice-server, or name the "
                         "folder with --bin")


def run_program(main: Callable[[], None]) -> None:
    """Runs `main` and ends the process: 0; 1 and a line for a failed measurement, read or write; 130 after Ctrl-C."""
    try:
        main()
    except (Failed, OSError, ValueError) as error:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
