# SPDX-License-Identifier: Apache-2.0
"""Tests bench/shaped.sh: its links are as fast as it says and no faster, change while they are used, and leave nothing behind however a
run ends. Exits with 77 (skipped) if it cannot make namespaces or links.

usage: shaped_test.py SHAPED_SH FOLDER_OF_PROGRAMS
"""
import ctypes
import json
import os
import pathlib
import re
import selectors
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

from processes import command_line, wait_until

PORT = 7070  # In separate namespaces.
LIMIT = 60  # In seconds, for anything.
# TCP's share of an Ethernet link: 1448 of 1514 bytes, with an MTU of 1500 and timestamps.
PAYLOAD = 1448 / 1514
# Allowed factors above that rate, for the burst of the link's bucket, and below it. A busy processor makes a link slower for a while, so
# the measurement then takes longer. A link with a rate in wrong units never gets within these factors.
OVER, UNDER = 1.03, 0.4
GIVEN_UP = 30  # In seconds.
BITS = {"200mbit": 200e6, "1gbit": 1e9}


# --- Inside: what runs beside the bridge, and in the processes' namespaces. ---

def receive(senders, seconds, enough):
    """Prints the bits per second that arrive from all senders after their start. Measures for `seconds`, or longer until the rate is
    `enough`."""
    with socket.create_server(("", PORT)) as server:
        print("listening", flush=True)
        connections = [server.accept()[0] for _ in range(senders)]
        start, count, into = time.monotonic(), 0, memoryview(bytearray(1 << 18))
        with selectors.DefaultSelector() as selector:
            for connection in connections:
                selector.register(connection, selectors.EVENT_READ)
                connection.sendall(b"!")
            while (past := time.monotonic() - start) < seconds or (8 * count < enough * past and past < GIVEN_UP):
                for key, _ in selector.select(0.1):
                    count += key.fileobj.recv_into(into)
        print(8 * count / (time.monotonic() - start), flush=True)


def send(host):
    with socket.create_connection((host, PORT)) as connection:
        block = bytes(1 << 18)
        connection.recv(1)
        try:
            while True:
                connection.sendall(block)
        except (ConnectionResetError, BrokenPipeError):
            pass  # The receiver has enough.


def hosts():
    return {**{f"w{i}": host for i, host in enumerate(os.environ["SHAPED_WORKER_HOSTS"].split(","))},
            **{f"s{i}": host for i, host in enumerate(os.environ["SHAPED_SERVER_HOSTS"].split(","))}}


def measure(flows, rate, seconds=1):
    """Returns the bits per second at each receiver of flows (from, to) that run at once, through links of a `rate`."""
    receivers, senders = {}, []
    into = [to for _, to in flows]
    for to in dict.fromkeys(into):
        receivers[to] = subprocess.Popen(["ip", "netns", "exec", to, sys.executable, __file__, "--receive",
                                          str(into.count(to)), str(seconds), str(UNDER * PAYLOAD * rate)],
                                         stdout=subprocess.PIPE, text=True)
        assert receivers[to].stdout.readline() == "listening\n"
    for source, to in flows:
        senders.append(subprocess.Popen(["ip", "netns", "exec", source, sys.executable, __file__, "--send", hosts()[to]]))
    rates = [float(receivers[to].communicate(timeout=LIMIT)[0]) for to in receivers]
    for sender in senders:
        sender.wait(timeout=LIMIT)
    return rates


def measure_all(shaped):
    """Returns the measured rates for two rates of the links."""
    result = {}
    for rate in BITS:
        if rate != os.environ["SHAPED_RATE"]:
            subprocess.run([shaped, "--set", rate], check=True)
        result[rate] = {"one way": measure([("w0", "s0")], BITS[rate]),
                        "both ways": measure([("w0", "s0"), ("s0", "w0")], BITS[rate]),
                        "two into one": measure([("w0", "s0"), ("w1", "s0")], BITS[rate])}
    print(json.dumps(result))


def connect():
    """Returns the seconds that worker 0 needs to connect to shard 0."""
    shard = hosts()["s0"]
    listener = subprocess.Popen(["ip", "netns", "exec", "s0", sys.executable, __file__, "--listen"], stdout=subprocess.PIPE, text=True)
    assert listener.stdout.readline() == "listening\n"
    done = subprocess.run(["ip", "netns", "exec", "w0", sys.executable, __file__, "--connect", shard], stdout=subprocess.PIPE,
                          text=True, timeout=LIMIT, check=True)
    listener.wait(timeout=LIMIT)
    return float(done.stdout)


def listen():
    with socket.create_server(("", PORT)) as server:
        print("listening", flush=True)
        server.accept()


def time_connection(host):
    begin = time.monotonic()
    socket.create_connection((host, PORT), LIMIT).close()
    print(time.monotonic() - begin)


# --- Outside ---

def shaped_command(shaped, *rest, workers=2, shards=1, rate="200mbit"):
    return [shaped, "--workers", str(workers), "--shards", str(shards), "--rate", rate, *rest]


def check_rates(shaped):
    def right(rate, values):
        return all(UNDER <= value / (BITS[rate] * PAYLOAD) <= OVER for value in values)

    done = subprocess.run(shaped_command(shaped, "--exec", sys.executable, __file__, "--inside", shaped),
                          stdout=subprocess.PIPE, text=True, timeout=5 * LIMIT, check=True)
    measured = json.loads(done.stdout)
    for rate, by_kind in measured.items():
        print(rate, {kind: [f"{value / BITS[rate]:.3f}" for value in values] for kind, values in by_kind.items()},
              f"of the rate, {PAYLOAD:.3f} is all that TCP can have")
    assert all(right(rate, values) for rate, by_kind in measured.items() for values in by_kind.values()), "a link does not have the requested rate"


def end_with_parent():
    """Runs in a child: the child is killed if this test ends first, for example on a failure."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Run:
    """A run of shaped.sh with a sleeping process in w0. The sleep's duration identifies that process."""

    def __init__(self, shaped, *command):
        self.mark = f"{1000 + os.getpid()}.{time.monotonic_ns()}"
        script = f"ip netns exec w0 sleep {self.mark} & echo ready; " + (command[0] if command else "wait")
        self.process = subprocess.Popen(shaped_command(shaped, "--exec", "bash", "-c", script), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        preexec_fn=end_with_parent)
        assert self.process.stdout.readline() == "ready\n"
        wait_until(self.left, "the process in w0", LIMIT)

    def go_on(self):
        """Sends one line to a command that reads."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def left(self):
        """Returns the running processes of the run."""
        return [path.name for path in pathlib.Path("/proc").glob("[0-9]*") if self.mark in " ".join(command_line(path.name))]

    def check_gone(self, status):
        self.process.communicate(timeout=LIMIT)
        assert self.process.returncode == status, (self.process.returncode, status)
        wait_until(lambda: not self.left(), "the end of all processes", LIMIT)


def check_endings(shaped):
    devices = pathlib.Path("/proc/net/dev").read_text().count("\n")
    names = subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, text=True).stdout
    run = Run(shaped, "read -r _; exit 7")  # Exits only after the test has found the sleeping process.
    run.go_on()
    run.check_gone(7)
    for sent, status in ((signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)):
        run, other = Run(shaped), Run(shaped)  # Two concurrent runs must not affect each other.
        run.process.send_signal(sent)
        run.check_gone(status)
        assert other.process.poll() is None and other.left()
        other.process.kill()
        other.check_gone(-signal.SIGKILL)
    run = Run(shaped, "trap 'echo interrupted; exit 5' INT; while true; do sleep 0.1; done")
    run.process.send_signal(signal.SIGINT)
    assert run.process.stdout.read() == "interrupted\n"  # Once.
    run.check_gone(5)
    assert pathlib.Path("/proc/net/dev").read_text().count("\n") == devices
    assert subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, text=True).stdout == names


def check_set(shaped):
    run = Run(shaped, "while read -r _; do for n in w0 w1 s0 bridge; do tc -n $n qdisc; done; echo end; done")

    def devices():
        run.go_on()
        lines = list(iter(run.process.stdout.readline, "end\n"))
        return [line for line in lines if " tbf " in line]

    assert len(devices()) == 6 and all("rate 200Mbit" in line for line in devices()), devices()
    other = Run(shaped)
    change = [shaped, "--of", str(run.process.pid), "--set"]
    subprocess.run([*change, "2.5gbit"], check=True)
    assert len(devices()) == 6
    for line in devices():  # The burst is 2 ms of the rate, up to the kernel's ticks.
        burst = re.search(r"rate 2500Mbit burst (\d+)b", line)
        assert burst and abs(int(burst[1]) - 625000) < 6250, line
    subprocess.run([*change, "none"], check=True)
    assert not devices()
    subprocess.run([*change, "none"], check=True)
    subprocess.run([*change, "5mbit"], check=True)
    assert len(devices()) == 6
    for each in (run, other):
        each.process.kill()
        each.check_gone(-signal.SIGKILL)
    gone = subprocess.run([*change, "5mbit"], stderr=subprocess.PIPE, text=True)
    assert gone.returncode == 2 and "is not a running shaped.sh" in gone.stderr, gone


def check_up_rate(shaped):
    """Only what workers send has the lower rate."""
    script = "for n in w0 w1 s0 bridge; do tc -n $n qdisc | sed s/^/$n./; done"
    done = subprocess.run(shaped_command(shaped, "--up-rate", "110mbit", "--exec", "bash", "-c", script, rate="500mbit"),
                          stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=True)
    rates = [(line.partition(".")[0], re.search(r" rate (\w+) ", line)[1]) for line in done.stdout.splitlines() if " tbf " in line]
    assert sorted(rates) == [("bridge", "500Mbit")] * 3 + [("s0", "500Mbit"), ("w0", "110Mbit"), ("w1", "110Mbit")], rates


def check_arguments(shaped):
    for arguments, expected in ((["--workers", "2"], "are needed"), (["--rate", "1gb"], '"1gb" is not a rate'),
                                (["--shards", "0"], '--shards must be a number from 1 to 250, not "0"'),
                                (["--speed"], "no such argument: --speed"), (["--set", "1gbit"], "--of PID"),
                                (["--workers", "1", "--shards", "1", "--rate", "none"], "end with --"),
                                (["--workers", "1", "--shards", "1", "--rate", "none", "--bin", "/proc", "--"],
                                 "there is no sluice in")):
        done = subprocess.run([shaped, *arguments], stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2 and expected in done.stderr, (arguments, done)
    # Records the arguments that `sluice bench exchange` gets, with a program that prints them.
    with tempfile.TemporaryDirectory() as folder:
        sluice = pathlib.Path(folder) / "sluice"
        sluice.write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 3\n')
        sluice.chmod(sluice.stat().st_mode | stat.S_IXUSR)
        for rate, link in (("1gbit", "--link-rate|1gbit|"), ("none", "")):
            done = subprocess.run(shaped_command(shaped, "--bin", folder, "--", "--report", "a b", shards=2, rate=rate),
                                  stdout=subprocess.PIPE, text=True)
            assert done.returncode == 3
            assert done.stdout == ("bench|exchange|--workers|2|--shards|2|--wrap-worker|ip netns exec w{}|--wrap-server|"
                                   f"ip netns exec s{{}}|--server-hosts|10.77.0.1,10.77.0.2|{link}--report|a b|"), done.stdout


def check_delay(shaped):
    """A connection needs a round trip, with netem and with the switch of kernels without it."""
    done = subprocess.run(shaped_command(shaped, "--delay", "60ms", "--exec", sys.executable, __file__, "--connection"),
                          stdout=subprocess.PIPE, text=True, timeout=LIMIT)
    assert done.returncode == 0, done
    assert 0.12 <= float(done.stdout) < LIMIT, done.stdout


def check_exchange(shaped, folder_of_programs):
    """Runs `sluice bench exchange` with every process behind a link that needs 0.4 s for its bytes."""
    with tempfile.TemporaryDirectory() as folder:
        table, path = pathlib.Path(folder) / "table", pathlib.Path(folder) / "json"
        table.write_text("a 500 1000\n")
        done = subprocess.run(
            shaped_command(shaped, "--bin", folder_of_programs, "--", "--table", str(table), "--spec", "none", "--warmup", "1",
                           "--repeats", "3", "--no-baselines", "--report", str(path), shards=2, rate="40mbit"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
        assert done.returncode == 0, done
        figures = json.loads(path.read_text())
    assert (figures["workers"], figures["shards"], figures["link_bits_per_second"]) == (2, 2, 40e6), figures
    assert 0.99 < figures["bytes_up"] / 2e6 < 1.01 and 0.99 < figures["bytes_down"] / 2e6 < 1.01, figures
    # Only the bucket's 256 KiB may exceed the rate.
    fastest = (figures["busiest_link"]["bytes"] - 2 * 262144) * 8e3 / 40e6
    assert figures["exchange_ms"]["min"] > fastest, (figures, fastest)


def main():
    if sys.argv[1] == "--receive":
        return receive(int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
    if sys.argv[1] == "--send":
        return send(sys.argv[2])
    if sys.argv[1] == "--listen":
        return listen()
    if sys.argv[1] == "--connect":
        return time_connection(sys.argv[2])
    if sys.argv[1] == "--connection":
        return print(connect())
    if sys.argv[1] == "--inside":
        return measure_all(sys.argv[2])
    shaped = str(pathlib.Path(sys.argv[1]).resolve())
    probe = subprocess.run(shaped_command(shaped, "--exec", "true"), stderr=subprocess.PIPE, text=True)
    if probe.returncode == 77:
        print(f"skipped: {probe.stderr.strip()}")
        return 77
    assert probe.returncode == 0, probe.stderr
    begin = time.monotonic()
    for check, arguments in ((check_arguments, ()), (check_endings, ()), (check_set, ()), (check_up_rate, ()),
                             (check_delay, ()), (check_rates, ()), (check_exchange, (sys.argv[2],))):
        check(shaped, *arguments)
        print(f"{check.__name__} is done after {time.monotonic() - begin:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
