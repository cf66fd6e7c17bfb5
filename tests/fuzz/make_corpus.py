#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of tests/fuzz/corpus from the golden frames and from the specs of the codec table.

Run it after adding a golden file: tests/fuzz/make_corpus.py. The findings of fuzzers are beside the seeds under other
names. This program does not change them.
"""
import json
import pathlib
import random
import re
import struct

TESTS = pathlib.Path(__file__).resolve().parent.parent
CORPUS = TESTS / "fuzz" / "corpus"


def golden(path):
    entries, key = {}, None
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if line[0] != " ":
            key, _, line = line.partition(" ")
        entries[key] = entries.get(key, "") + " " + line
    return {key: text.strip() for key, text in entries.items()}


def floats(text):
    values = b""
    for word in text.split():
        number, _, times = word.partition("*")
        values += struct.pack("<I", int(number, 16)) * int(times or 1)
    return values


def write(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def table_examples():
    text = (TESTS.parent / "compress" / "codec_table.cc").read_text()
    text = text[text.index("kCodecs[] = {"):]
    examples = re.findall(r'\{CodecId::k\w+,\s*"\w+",\s*"([^"]+)"', text)
    text = (TESTS / "compress" / "test_data.h").read_text()
    text = text[text.index("TestedSpecs()"):text.index("return specs")]
    return sorted(set(examples + re.findall(r'"([^"]+)"', text)))


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def snapshot(kind, sections):
    """Returns a checkpoint state in the format of docs/checkpoints.md, made without Sluice's own code."""
    body = b""
    for number, payload in sections:
        rest = struct.pack("<Q", len(payload)) + payload
        body += struct.pack("<II", number, crc32c(struct.pack("<I", number) + rest)) + rest
    header = b"SLUICECP" + struct.pack("<HHIQ", 1, kind, len(sections), 28 + len(body))
    return header + struct.pack("<I", crc32c(header)) + body


def state(lists):
    data = struct.pack("<I", len(lists))
    for name, values in lists:
        data += struct.pack("<H", len(name)) + name + struct.pack("<Q%df" % len(values), len(values), *values)
    return data


def states(all_states):
    return struct.pack("<Q", len(all_states)) + b"".join(map(state, all_states))


def write_snapshots():
    specs = [b"topk:1%", b"int8/ef21"]
    compressor = struct.pack("<I", len(specs)) + b"".join(struct.pack("<H", len(s)) + s for s in specs)
    chunks = [(2, 0, 3, 1, 0, [(b"r", [1, -2])]), (6, 1, 4, 1, 2, []), (2, 0, 5, 2, 0, [(b"a", []), (b"r", [0.5])])]
    compressor += struct.pack("<Q", len(chunks))
    for count, spec, number, tensor, rows, lists in chunks:
        compressor += struct.pack("<QIIII", count, spec, number, tensor, rows) + state(lists)
    compressor += states([[(b"t", [0.5])], []])
    identity = struct.pack("<QQII", 7, 1000, 2, 1)
    empty = struct.pack("<IQQ", 0, 0, 0)
    write("snapshot", "shard", snapshot(1, [(1, identity), (2, struct.pack("<2Q", 1000, 999)), (3, compressor),
                                            (4, states([[], [(b"m", [1, 2])]]))]))
    write("snapshot", "worker", snapshot(2, [(1, identity), (3, compressor), (5, b"trainer")]))
    write("snapshot", "shard_empty", snapshot(1, [(1, identity), (2, b""), (3, empty), (4, struct.pack("<Q", 0))]))
    write("snapshot", "worker_empty", snapshot(2, [(1, identity), (3, empty), (5, b"")]))


def write_job_files():
    for path in sorted((TESTS.parent / "examples").glob("*.yaml")):
        # Comments make a seed large and are of no interest.
        text = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")) + "\n"
        write("job_file", path.stem, b"\x00" + text.encode())
        write("job_file", path.stem + "_dense", b"\x01" + text.encode())
    small = b"name: a\nworkers: 2\nmodel: {name: mlp}\ndata: {format: synthetic_images}\nsteps: 5\nbatch_size_per_worker: 4\n"
    sets = [b"optimizer.lr=0.1", b"compression.uplink=topk:1%+int4", b"epochs=2", b"mode=ssp", b"staleness=3"]
    write("job_file", "small", b"\x00" + small)
    for number, argument in enumerate(sets):
        write("job_file", "set_%d" % number, b"\x00" + small + b"\x00" + argument)
    write("job_file", "sets", b"\x00" + small + b"\x00" + b"\x00".join(sets))
    sections = (b"checkpoint: {dir: /c, interval: 10, keep: 2, store: shards, replay_limit: 0}\n"
                b"server: {lease_timeout: 5s, stall_timeout: 1h, window_bytes: 64MiB}\n"
                b"control: {policy: auto}\nmembership: elastic\nmin_workers: 1\nmax_workers: 4\n")
    write("job_file", "sections", b"\x00" + small + sections)
    odd = [b"", b"name", b"- a\n", b"name: &a [*a]\n", b"a: &a {b: *a}\n", b"name: {" * 40, b"\xff\xfe", b"name: \xc3\n",
           b"name: a\n---\nname: b\n", b"name: !!binary aa\n", b"steps: 18446744073709551616\n", b"workers: -1\n",
           b"optimizer: {lr: .nan}\n", b"\xe2\x80\xae: 1\n", b"? [a]\n: b\n"]
    for number, text in enumerate(odd):
        write("job_file", "odd_%02d" % number, b"\x00" + text)


def write_requests():
    host = b"Host: 127.0.0.1\r\n"
    requests = {
        "livez": b"GET /livez HTTP/1.1\r\n" + host, "readyz_head": b"HEAD /readyz HTTP/1.1\r\n" + host,
        "metrics": b"GET /metrics?a=b HTTP/1.1\r\n" + host, "status": b"GET /status.json HTTP/1.1\r\n" + host,
        "page": b"GET / HTTP/1.0\r\n", "absent": b"GET /../etc/passwd HTTP/1.1\r\n" + host,
        "no_host": b"GET / HTTP/1.1\r\n", "two_hosts": b"GET / HTTP/1.1\r\n" + host + host,
        "other_host": b"GET / HTTP/1.1\r\nHost: evil.example:80\r\n",
        "ipv6": b"GET / HTTP/1.1\r\nHost: [::1]:7071\r\n", "name": b"GET / HTTP/1.1\r\nHost: LOCALHOST.:1\r\n",
        "post": b"POST / HTTP/1.1\r\n" + host, "content": b"GET / HTTP/1.1\r\nContent-Length: 5\r\n" + host,
        "chunked": b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + host, "version": b"GET / HTTP/2.0\r\n",
        "range": b"GET /livez HTTP/1.1\r\nRange: bytes=" + b"1" * 500 + b"-\r\n" + host,
        "header": b"GET / HTTP/1.1\r\nno colon\r\n", "folded": b"GET / HTTP/1.1\r\n" + host + b" more\r\n",
        "line_feed": b"GET / HTTP/1.1\nHost: a\r\n", "control": b"GET /\x01 HTTP/1.1\r\n", "empty": b"",
        "tls": bytes.fromhex("16030100a5010000a10303"), "no_path": b"GET  HTTP/1.1\r\n",
    }
    for name, request in requests.items():
        write("http", name, struct.pack("<H", 7) + request + b"\r\n")
    write("http", "incomplete", struct.pack("<H", 1) + b"GET / HTTP/1.1\r\n")
    write("http", "two", struct.pack("<H", 0) + (b"GET /livez HTTP/1.1\r\n" + host + b"\r\n") * 2)
    write("http", "long_line", struct.pack("<H", 4096) + b"GET /" + b"a" * 8200)
    write("http", "long_header", struct.pack("<H", 8192) + b"GET / HTTP/1.1\r\nA: " + b"b" * 8200)


def sealed(record):
    rest = json.dumps({k: v for k, v in record.items() if k != "checksum"}, sort_keys=True, separators=(",", ":"))
    return json.dumps({**record, "checksum": "%08x" % crc32c(rest.encode())}).encode()


def write_folders():
    def folder(name, files):
        write("checkpoint", name, b"".join(struct.pack("<BH", kind, len(data)) + data for kind, data in files))

    state = snapshot(1, [(1, struct.pack("<QQII", 77, 2, 0, 0)), (2, b""), (3, struct.pack("<IQQ", 0, 0, 0)),
                         (4, struct.pack("<Q", 0))])
    run = {"format": "sluice run", "version": 2, "job_name": "demo", "job_uid": "%016x" % 77, "term": 0,
           "finished": False, "coordinator": 3}
    announced = {**run, "generation": 1, "restore_step": 0, "parameters_agree": True,
                 "members": [{"nonce": "%016x" % 5, "incarnation": "%016x" % 100, "host": "a\\n", "pid": 7,
                              "parameters_sha256": "00ff"}],
                 "table": [{"name": "w", "shape": "4x2", "strides": "2x1", "dtype": 1},
                           {"name": "mean", "shape": "4", "strides": "", "dtype": 3, "role": 1}]}

    def manifest(step, **changes):
        part = {"name": "shard-0-term-0.state", "bytes": len(state), "checksum": "%08x" % crc32c(state)}
        return {"format": "sluice checkpoint", "version": 1, "job_name": "demo", "job_hash": "%016x" % 9,
                "job_uid": "%016x" % 77, "term": 0, "step": step, "world_size": 1, "shards": 1,
                "table_hash": "%016x" % 8, "chunk_elements": 512, "bundle_elements": 1024,
                "software_version": "1", "parts": [part], **changes}

    def part_of(**changes):
        return {**manifest(2)["parts"][0], **changes}

    folder("empty", [])
    folder("run", [(0, sealed(run))])
    folder("announced", [(0, sealed(announced))])
    folder("finished", [(0, sealed({**announced, "finished": True}))])
    folder("announced_without_generation", [(0, sealed({**announced, "generation": 0}))])
    folder("one", [(0, sealed(run)), (2, sealed(manifest(2))), (4, state)])
    folder("two", [(0, sealed(run)), (1, sealed(manifest(1))), (3, state), (2, sealed(manifest(2))), (4, state)])
    folder("two_and_damage", [(0, sealed(run)), (1, sealed(manifest(1))), (3, state), (2, sealed(manifest(2))),
                              (4, state[:-1])])
    folder("at_shards", [(0, sealed(run)), (6, state),
                         (2, sealed(manifest(2, store="shards", parts=[part_of(server=0)])))])
    folder("no_run", [(2, sealed(manifest(2))), (4, state)])
    folder("other_run", [(0, sealed(run)), (2, sealed(manifest(2, job_uid="%016x" % 78))), (4, state)])
    folder("own_file", [(0, sealed(run)), (5, state),
                        (2, sealed(manifest(2, version=2, parts=[part_of(file="parameters.pt")])))])
    folder("escape", [(0, sealed(run)), (2, sealed(manifest(2, parts=[part_of(name="../run.json")])))])
    folder("many_shards", [(0, sealed(run)), (2, sealed(manifest(2, shards=2**32 - 1)))])
    folder("twice", [(0, sealed(run)), (2, sealed(manifest(2, parts=[part_of(), part_of()]))), (4, state)])
    folder("newer", [(0, sealed({**run, "version": 3})), (2, sealed(manifest(2, version=9)))])
    folder("deep", [(0, b'{"a":' + b"[" * 2000), (2, b"[" * 30 + b"]" * 30)])
    folder("last_step", [(0, sealed(run)), (7, sealed(manifest(2**64 - 1))), (8, b"unfinished")])
    folder("not_text", [(0, b"\xff\x00"), (1, b""), (2, b'{"format":"\xff"}')])


def write_events():
    """Writes events for handler_fuzz.cc: honest ones first, so that changed messages meet a job that runs."""
    honest = bytes([11]) * 6
    late = struct.pack("<BH", 9, 20000) + bytes([10])  # After this time in milliseconds, all leases are over.
    for kind in range(32):
        rng = random.Random(kind)
        write("handler", "coordinator_%02d" % kind, bytes([kind]) + honest + rng.randbytes(150) + honest
              + rng.randbytes(150))
        write("handler", "losses_%02d" % kind, bytes([kind]) + (honest + late) * 3 + honest + rng.randbytes(50)
              + honest)
    for kind in range(12):
        rng = random.Random(100 + kind)
        steps = bytes([7]) * 3
        write("handler", "shard_%02d" % kind, bytes([0x80 | kind]) + steps + rng.randbytes(200) + steps
              + rng.randbytes(200))


def write_patches():
    for path in sorted((TESTS / "golden" / "patches").glob("*.txt")):
        write("patch", "golden_" + path.stem, b"\x00" + bytes.fromhex(golden(path)["patch"].replace(" ", "")))
    # Two parts without changes, of a patch with a wrong checksum: the fuzzer also tries it with the right ones.
    header = b"SLUICEPT" + struct.pack("<HBBIQQQ", 1, 0, 0, 0, 2**20 + 5, 1, 2) + bytes(3 * 32 + 16)
    write("patch", "two_parts", b"\x00" + header + bytes(16))
    headers = {
        "one": b'{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}', "empty": b"{}",
        "two": b'{"b":{"dtype":"F32","shape":[1,1],"data_offsets":[4,8]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}',
        "metadata": b'{"__metadata__":{"format":"pt"},"a":{"dtype":"F16","shape":[4,0],"data_offsets":[0,0]}}',
        "types": b'{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"b":{"dtype":"I64","shape":[1],"data_offsets":[2,10]}}',
        "repeated": b'{"a":{},"a":{}}', "deep": b'{"a":[[[[1]]]]}', "huge": b'{"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,1e99]}}'}
    values = {"one": 4, "two": 8, "types": 10}
    for name, text in headers.items():
        write("safetensors", name, text + b"\n" + bytes(values.get(name, 0)))
        write("safetensors", name + "_file", struct.pack("<Q", len(text)) + text + bytes(values.get(name, 0)))


def main():
    write_snapshots()
    write_patches()
    write_job_files()
    write_requests()
    write_folders()
    write_events()
    previous = b""
    for path in sorted((TESTS / "golden" / "frames").glob("*.txt")):
        entries = golden(path)
        if "frame" not in entries or "gradient" not in entries:
            continue
        frame = bytes.fromhex(entries["frame"].replace(" ", ""))
        count = struct.unpack_from("<I", frame, 4)[0]
        if count > 0xFFFF or len(frame) > 4096:
            continue
        name = "golden_" + path.stem
        write("frame", name, struct.pack("<H", count) + frame)
        one = b"\x00" + struct.pack("<H", len(frame)) + frame
        write("sum", name, struct.pack("<HBff", count, 2, 0.5, -3.0) + one + one)
        if previous:
            write("sum", name + "_mixed", struct.pack("<HB", count, 0) + one + previous)
        previous = one
        values = floats(entries["gradient"])
        spec = entries["spec"].encode()
        for target in ("round_trip", "instruction_set"):
            write(target, name, spec + b"\n\x01\x02" + struct.pack("<H", count) + values[:1024])
    for number, spec in enumerate(table_examples()):
        name = "spec_%s" % re.sub(r"[^a-z0-9]+", "_", spec)
        text = spec.encode()
        write("spec", name, text)
        some = struct.pack("<6f", 1, -0.25, 1e-3, 0, 3e-39, 7e4)
        for target in ("round_trip", "instruction_set"):
            write(target, name, text + b"\n\x03\x04" + struct.pack("<H", 300) + some)
        steps = b"\x01\x05\x10" * 2 + b"\x01\x06\x20\x02\x01\x19\x00\xff" + b"\x00\x01\x07\x00" + b"\x01\x08\x10" * 4
        write("receiver", name, text + b"\n\x01" + struct.pack("<H", 96) + steps)
    write("spec", "words", b"topk:1%,scope=tensor+int4/dgc:0.9,clip=4,warmup=400")


main()
