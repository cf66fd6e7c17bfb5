# SPDX-License-Identifier: Apache-2.0
"""Attacks on the gRPC ports of a running job by a member: someone who holds the workers' token, and for some attacks also the secret of
rank 1, whose traffic it has heard. The job has a role file and `checkpoint.store: shards`.

Each attack is a function of a Member (protected_job.py). It raises AssertionError if a reply is wrong or a process is harmed.
"""
import contextlib
import hashlib
import math
import pathlib
import threading

from grpc_client import DENIED, EXHAUSTED, INVALID, NO_WINDOW, OK, PRECONDITION, Client, ask
from http_attacks import expect
from messages import METHODS, decode, encode, random_values

EXCHANGE, LEAVE, HEARTBEAT = "sluice.v1.ParameterShard/Exchange", "sluice.v1.Coordinator/Leave", "sluice.v1.Coordinator/Heartbeat"
JOIN, REPORT = "sluice.v1.Coordinator/Join", "sluice.v1.Coordinator/ReportCheckpoint"
PUT, GET = "sluice.v1.CheckpointStore/PutPart", "sluice.v1.CheckpointStore/GetPart"
OTHER_ROLES = ("sluice.v1.ShardControl/Enter", "sluice.v1.ShardControl/Attach", "sluice.v1.Coordinator/RequestCheckpoint",
               "sluice.v1.Coordinator/EvictRank", "sluice.v1.Coordinator/ChangeSettings")
FENCED, INVALID_REQUEST = 4, 5  # Outcomes of an exchange.
FAR = 1 << 62
CALLS = 40  # On one connection; a server allows 64.
FORGED_LINE = "2026-01-01T00:00:00.000Z INFO shard-0: a forged line"
FORGED = f"a\r\n{FORGED_LINE}\n\x1b[2J\x1b]0;x\x07"


def flood(member, messages_of, number):
    """Sends messages to all methods of all shards. Every call must end."""
    for port in member.job.ports:
        for method, request in METHODS.items():
            for _ in range(number // CALLS):
                with Client(port, member.token) as client:
                    for _ in range(CALLS):
                        client.begin(method, messages_of(request))
                    expect(client.wait(30) or client.closed, f"a call of {method} does not end")
                    if method in OTHER_ROLES:
                        expect(not any(one.answers for one in client.calls), f"{method} answers a worker")


def random_protobuf(member):
    flood(member, lambda _: member.chance.randbytes(member.chance.choice((1, 5, 30, 300, 3000))), CALLS)


def random_fields(member):
    """Well-formed requests. Their senders know the job, the term and the rank, but not the rank's secret."""
    def message(request):
        values = random_values(request, member.chance)
        if "sender" in values and member.chance.random() < 0.8:
            values["sender"] = member.forged(member.chance.randrange(2))
        return encode(request, values)
    flood(member, message, 2 * CALLS)


def forged_senders(member):
    """Requests of another rank, each well-formed: skips, broken frames, heartbeats, leaves, reports and parts."""
    frame = {"frame": b"\0" * 100, "checksum": 1}
    for rank in (0, 1, 2, 1000):
        sender = member.forged(rank)
        for port in member.job.ports:
            for more in ({"skip": True}, {"keys_only": True}, {"contributions": [frame]}, {"contributions": []}):
                answered = ask(port, member.token, EXCHANGE, {"sender": sender, "step": 5, "generation": sender["generation"], **more})
                outcomes = {decode("ExchangeReply", answer).get("outcome") for answer in answered.answers}
                expect(outcomes <= {FENCED, INVALID_REQUEST}, f"an exchange with {list(more)} of rank {rank} is answered with {outcomes}")
        part = {"step": 25, "term": sender["term"], "name": f"worker-{rank}-term-{sender['term']}.state", "bytes": 3, "checksum": 1}
        for method, request in ((HEARTBEAT, {"parts": [part]}), (LEAVE, {"finished": True}), (LEAVE, {"reason": "forged"}),
                                (REPORT, {"part": part}), (REPORT, {"part": {**part, "error": "no", "unreadable": True}}),
                                (PUT, {"part": part}), (GET, {"part": part})):
            status = ask(member.job.ports[0], member.token, method, {"sender": sender, **request}).status
            expect(status not in (OK, None), f"{method} with a forged sender of rank {rank}: status {status}")


def calls_of_other_roles(member):
    """Attach as a shard, with a number above that of every process, and the commands of an administrator."""
    hello = {"hello": {"job_name": "survival", "shard": 1, "address": "127.0.0.1:1", "server_incarnation": 1 << 63, "nonce": 1}}
    requests = dict(zip(OTHER_ROLES, ({}, hello, {"job_name": "survival"}, {"allow_rollback": True}, {"lease_timeout_seconds": 0.1})))
    for method, request in requests.items():
        for port in member.job.ports:
            status = ask(port, member.token, method, request).status
            expect(status == DENIED, f"{method} by a worker: status {status}")


def closed_step(member):
    return min(int(shard["highest_closed_step"]) for shard in member.status()["shards"])


def take_rank(client, member):
    """Opens a stream with the secret of rank 1 and asks for the open step. Returns the stream and its request.

    Three invalid requests in a row would end the job, as a worker may. The request is invalid if the job has just completed a checkpoint, so it
    is repeated once rank 1 has been heard again."""
    for _ in range(3):
        closed = closed_step(member)
        request = {"sender": member.stolen, "step": closed + 1, "keys_only": True}
        stream, call = client.begin(EXCHANGE, request, end=False), client.calls[-1]
        client.read(lambda: call.answers or call.ended)
        outcomes = {decode("ExchangeReply", answer).get("outcome") for answer in call.answers}
        if outcomes and not outcomes & {FENCED, INVALID_REQUEST}:
            return stream, request
        member.job.wait_until(lambda: closed_step(member) > closed, f"a step after {closed}")
    raise AssertionError(f"a stream with the secret did not take the rank over: {outcomes}")


def take_over(member):
    """Streams that name rank 1 with its secret. They hold the rank for a moment, and end."""
    for _ in range(5):
        for port in member.job.ports:
            with Client(port, member.token) as client:
                take_rank(client, member)


def part_of_far_step(member):
    """Reports of the rank's own part. They must not keep the next checkpoints from being named."""
    for step in (FAR, (1 << 64) - 1):
        part = {"term": member.stolen["term"], "step": step, "name": f"worker-1-term-{member.stolen['term']}.state", "bytes": 1}
        for error in ("", "the disk is full"):
            ask(member.job.ports[0], member.token, REPORT, {"sender": member.stolen, "part": {**part, "error": error}})
            ask(member.job.ports[0], member.token, HEARTBEAT, {"sender": member.stolen, "parts": [{**part, "error": error}]})


def threads(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/task").iterdir()))


def stalled_parts(member):
    """Sixteen parts that stop after the first message, and 200 calls without one."""
    shards = [member.job.running[f"shard-{shard}"].pid for shard in range(2)]
    before = list(map(threads, shards))
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(port, member.token)) for port in member.job.ports for _ in range(6)]
        for number, client in enumerate(clients):
            if number % 6 == 0:
                part = {"term": member.stolen["term"], "step": newest(member), "name": f"worker-1-term-{member.stolen['term']}.state",
                        "bytes": 1000, "checksum": 1}
                for _ in range(16):
                    client.begin(PUT, {"sender": member.stolen, "part": part}, end=False)
            else:
                for _ in range(CALLS):
                    client.begin(PUT, end=False)
        expect(clients[1].read(lambda: any(one.status == EXHAUSTED for one in clients[1].calls)), "200 calls without a part are all taken")
        more = max(now - then for now, then in zip(map(threads, shards), before))
        expect(more < 100, f"200 calls without a part take {more} threads")
        for client in clients:
            expect(client.wait(30) or client.closed, "a stalled part does not end")


def unread_parts(member):
    """Sixteen readers of a part who accept none of its bytes."""
    step = newest(member)
    name = f"worker-1-term-{member.stolen['term']}.state"
    path = next(iter(member.job.checkpoints.glob(f"shard-*/step-{step:012}/{name}")), None)
    expect(path is not None, f"no server has {name} of step {step}")
    part = {"term": member.stolen["term"], "step": step, "name": name, "bytes": path.stat().st_size}
    with contextlib.ExitStack() as stack:
        for port in member.job.ports:
            client = stack.enter_context(Client(port, member.token, NO_WINDOW))
            for _ in range(16):
                client.begin(GET, {"sender": member.stolen, "part": part})
            # The client answers pings, so that the connection stays open.
            threading.Thread(target=client.read, args=(lambda: False, 60), daemon=True).start()
        member.expect_checkpoint()


def unread_replies(member):
    """Parts whose sender accepts no byte of the reply, one after the other."""
    shard = member.job.running["shard-1"].pid
    before = threads(shard)
    with Client(member.job.ports[1], member.token, NO_WINDOW) as client:
        for _ in range(CALLS):
            part = {"term": member.stolen["term"], "step": newest(member), "name": f"worker-1-term-{member.stolen['term']}.state"}
            client.begin(PUT, {"sender": member.stolen, "part": part})
            client.read(lambda: client.calls[-1].ended, 0.2)
        expect(not client.closed, "the connection ended before the replies were due")
        more = threads(shard) - before
        expect(more < 10, f"{CALLS} unread replies hold {more} threads")
        # The client answers pings, so that the connection stays open.
        threading.Thread(target=client.read, args=(lambda: False, 60), daemon=True).start()
        member.expect_checkpoint()


def newest(member):
    return member.job.wait_until_complete()


def contents(folder, step):
    found = {}
    for path in folder.rglob(f"step-{step:012}/*"):
        with contextlib.suppress(FileNotFoundError):  # An older checkpoint may be removed at any time.
            found[path] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def complete_parts_again(member):
    """Parts of the newest complete checkpoint with other content, and of steps that do not exist."""
    step, term = newest(member), member.stolen["term"]
    before = contents(member.job.checkpoints, step)
    for name in (f"worker-1-term-{term}.state", f"worker-0-term-{term}.state", f"shard-0-term-{term}.state", "parameters.pt", "manifest.json"):
        for at in (step, 1 << 60, FAR):
            part = {"term": term, "step": at, "name": name, "bytes": 0, "checksum": 0}
            for port in member.job.ports:
                ask(port, member.token, PUT, {"sender": member.stolen, "part": part}, seconds=3)
    after = contents(member.job.checkpoints, step)
    changed = [str(path) for path, was in before.items() if path in after and after[path] != was]
    expect(not changed, f"files of a complete checkpoint were overwritten: {changed}")
    for far in (1 << 60, FAR):
        expect(not list(member.job.checkpoints.rglob(f"step-*{far}")), f"a part of step {far} was stored")


def odd_names(member):
    step, term = newest(member), member.stolen["term"]
    names = ("../x", "../../x", "/tmp/x", "a/b", "x\0y", ".", "..", ".x", "", "x" * 201, "x" * 300, "manifest.json", "run.json", "lock",
             "worker-1-term-9.state", "worker-1-term-0.state/../x", "shard-0-term-0.state", "\n", "é")
    before = {path for path in member.job.folder.rglob("*") if "step-" not in str(path)}
    for name in names:
        part = {"term": term, "step": step, "name": name, "bytes": 0, "checksum": 0}
        for method in (PUT, GET):
            status = ask(member.job.ports[0], member.token, method, {"sender": member.stolen, "part": part}, seconds=3).status
            expect(status not in (OK, None), f"{method} of {name[:40]!r}: status {status}")
    after = {path for path in member.job.folder.rglob("*") if "step-" not in str(path)}
    expect(after == before, f"new files: {after - before}")


def odd_heartbeats(member):
    for value in (math.nan, math.inf, -math.inf, 1e308):
        progress = {"step": (1 << 64) - 1, "total_steps": FAR, "loss": value, "samples_per_second": value, "seconds_left": value,
                    "step_ms_p50": value, "bytes_up": (1 << 64) - 1, "residual_energy": value}
        timings = {name: value for name in ("compute_seconds", "decode_seconds", "exposed_encode_seconds")}
        ask(member.job.ports[0], member.token, HEARTBEAT,
            {"sender": member.stolen, "progress": progress, "timings": {**timings, "steps": (1 << 64) - 1}, "replay_from": (1 << 64) - 1,
             "known_shards": [(1 << 64) - 1] * 4000, "disk_wait": {"what": FORGED, "seconds": value}})
        expect(member.status()["members"], "the status has no members")


def many_joins(member):
    """480 of another job, some with 1,500 tensors, and 40 for ranks that have their workers."""
    tensors = {"tensors": [{"name": f"t{i}", "shape": [2, 3], "dtype": 1} for i in range(1500)], "hash": 1}
    requests = [encode("JoinRequest", {"job_name": "survival", "job_hash": 5, "rank": rank, "nonce": 7, "host": FORGED,
                                       "software_version": FORGED, **({"table": tensors} if rank % 10 == 9 else {})}) for rank in range(CALLS)]
    for _ in range(500 // CALLS):
        with Client(member.job.ports[0], member.token) as client:
            for request in requests:
                client.begin(JOIN, request)
            expect(client.wait(30), "a Join of another job does not end")
            expect(not any(one.answers for one in client.calls), "a Join of another job is answered")
    with Client(member.job.ports[0], member.token) as client:
        for nonce in range(CALLS):
            client.begin(JOIN, member.join + encode("JoinRequest", {"nonce": nonce}))
        client.read(lambda: False, 1)
        expect(not any(one.answers for one in client.calls), "a second worker got the rank of a live one")


def unread_answers(member):
    """20,000 requests for results, none of which is read."""
    for port in member.job.ports:
        with Client(port, member.token) as client:
            stream, request = take_rank(client, member)
            data = encode("ExchangeRequest", request)
            client.socket.settimeout(2)  # A server that takes no more bytes is as good as one that ends the stream.
            for _ in range(20_000):
                if client.closed:
                    break
                client.send(stream, data)


def forged_log_lines(member):
    """Texts with line breaks and terminal escapes, in every request that a worker may send."""
    sender = member.stolen
    part = {"term": sender["term"], "step": newest(member), "name": FORGED, "error": FORGED, "unreadable": True}
    for method, request in ((JOIN, {"job_name": FORGED, "host": FORGED, "software_version": FORGED}), (REPORT, {"sender": sender, "part": part}),
                            (LEAVE, {"sender": member.forged(), "reason": FORGED}), (PUT, {"sender": sender, "part": part}),
                            (HEARTBEAT, {"sender": sender, "disk_wait": {"what": FORGED, "trouble": FORGED, "seconds": 100}})):
        ask(member.job.ports[0], member.token, method, request, seconds=3)
    expect_clean_logs(member.job)


def expect_clean_logs(job):
    for path in job.folder.glob("*.log"):
        text = path.read_bytes()
        expect(b"\x1b" not in text and b"\x07" not in text, f"{path.stem} has a terminal escape in its log")
        expect(not any(line.startswith(FORGED_LINE.encode()) for line in text.splitlines()), f"{path.stem} has a forged line in its log")


def discarded_checkpoint(member):
    """Reports that the newest checkpoint cannot be read: with a name that no part has, and with parts that are intact."""
    def report(name):
        part = {"term": member.stolen["term"], "step": newest(member), "name": name, "error": "no", "unreadable": True}
        return ask(member.job.ports[0], member.token, REPORT, {"sender": member.stolen, "part": part}).status

    rollbacks = member.status()["rollbacks"]
    # A report is ignored (OK) if a newer checkpoint has become complete meanwhile.
    member.job.wait_until(lambda: report("anything") == INVALID, "a part that no checkpoint has is refused")
    for name in (f"worker-{rank}-term-{member.stolen['term']}.state" for rank in range(2)):
        member.job.wait_until(lambda name=name: report(name) == PRECONDITION, f"the report of {name}, which is intact, is refused")
    expect(member.status()["rollbacks"] == rollbacks, "the job has rolled back")


ALL = (random_protobuf, random_fields, forged_senders, calls_of_other_roles, take_over, part_of_far_step, stalled_parts, unread_parts,
       unread_replies, complete_parts_again, odd_names, odd_heartbeats, many_joins, unread_answers, forged_log_lines, discarded_checkpoint)
