#!/usr/bin/env python3
"""Writes the seeds of tests/fuzz/corpus from the golden frames and from the specs of the codec table.

Run it after adding a golden file: tests/fuzz/make_corpus.py. The findings of fuzzers are beside the seeds under other
names. This program does not change them.
"""
import pathlib
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


def main():
    write_snapshots()
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
