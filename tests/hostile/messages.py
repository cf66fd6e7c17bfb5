# SPDX-License-Identifier: Apache-2.0
"""The messages and methods of proto/sluice/v1, read from the .proto files, and their bytes on the wire.

Python has no protobuf here. The attacks also need bytes that a protobuf library would not write.
"""
import pathlib
import re
import struct

PROTOS = pathlib.Path(__file__).resolve().parent.parent.parent / "proto" / "sluice" / "v1"
FILES = ("common", "coordinator", "parameter_shard", "shard_control", "checkpoint_store")  # Those whose services a job's server offers.
EDGES = (0, 1, 2, 127, 128, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1)
DOUBLES = (0.0, -1.0, 1e308, float("inf"), float("-inf"), float("nan"))


class Field:
    def __init__(self, number, kind, repeated):
        self.number, self.kind, self.repeated = number, kind, repeated


class Tokens:
    def __init__(self, text):
        text = re.sub(r"//.*", "", text)
        self.tokens, self.at = re.findall(r'"(?:[^"\\]|\\.)*"|[\w.]+|[^\s\w]', text), 0

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1]

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def skip(self, end):
        while self.next() != end:
            pass


def read_fields(tokens, messages, fields):
    """Reads the body of a message or a oneof up to its closing brace."""
    while (word := tokens.next()) != "}":
        if word in ("message", "oneof", "enum"):
            name = tokens.next()
            tokens.next()  # {
            if word == "message":
                messages[name] = {}
                read_fields(tokens, messages, messages[name])
            elif word == "oneof":
                read_fields(tokens, messages, fields)
            else:
                tokens.skip("}")
        elif word in ("reserved", "option"):
            tokens.skip(";")
        else:
            kind = tokens.next() if word in ("repeated", "optional") else word
            name = tokens.next()
            tokens.next()  # =
            fields[name] = Field(int(tokens.next()), kind, word == "repeated")
            tokens.skip(";")


def read_service(tokens, service, methods):
    while (word := tokens.next()) != "}":
        if word == "rpc":
            name = tokens.next()
            tokens.next()  # (
            request = tokens.next()
            methods[f"sluice.v1.{service}/{name}"] = tokens.next() if request == "stream" else request
            tokens.skip(";")


def read_protos():
    """Returns fields by name for each message, and the request's message for each method."""
    messages, methods = {}, {}
    for file in FILES:
        tokens = Tokens((PROTOS / f"{file}.proto").read_text())
        while tokens.peek() is not None:
            word = tokens.next()
            if word in ("message", "enum", "service"):
                name = tokens.next()
                tokens.next()  # {
                if word == "message":
                    messages[name] = {}
                    read_fields(tokens, messages, messages[name])
                elif word == "service":
                    read_service(tokens, name, methods)
                else:
                    tokens.skip("}")
            else:
                tokens.skip(";")
    return messages, methods


MESSAGES, METHODS = read_protos()


def varint(number):
    out = b""
    number &= (1 << 64) - 1
    while number >= 128:
        out, number = out + bytes((number % 128 + 128,)), number // 128
    return out + bytes((number,))


def value_bytes(kind, value):
    """Returns the wire type and the bytes of one value."""
    if kind in ("double", "fixed64"):
        return 1, struct.pack("<d" if kind == "double" else "<Q", value)
    if kind in ("float", "fixed32"):
        return 5, struct.pack("<f" if kind == "float" else "<I", value)
    if kind in ("string", "bytes") or kind in MESSAGES:
        data = encode(kind, value) if isinstance(value, dict) else value.encode() if isinstance(value, str) else value
        return 2, varint(len(data)) + data
    return 0, varint(int(value))  # Integers, bool and enums.


def encode(message, values):
    """Returns the bytes of a message; `values` are by field name, and dicts are messages."""
    out = b""
    for name, value in values.items():
        field = MESSAGES[message][name]
        for one in value if field.repeated else (value,):
            wire, data = value_bytes(field.kind, one)
            out += varint(field.number << 3 | wire) + data
    return out


def random_value(kind, chance, depth):
    if kind in MESSAGES:
        return random_values(kind, chance, depth - 1) if depth > 0 else {}
    if kind == "double":
        return chance.choice(DOUBLES)
    if kind == "float":
        return chance.choice((0.0, -1.0, 3e38, float("inf"), float("nan")))
    if kind in ("string", "bytes"):
        return chance.randbytes(chance.choice((0, 1, 20, 300))) if kind == "bytes" or chance.random() < 0.3 else "x\n\x1b[2J" * chance.randrange(9)
    number = chance.choice(EDGES) if chance.random() < 0.5 else chance.getrandbits(64)
    return number if kind not in ("fixed32", "uint32") else number & 0xffffffff


def random_values(message, chance, depth=3):
    """Returns values for a random choice of the fields, with many of the largest and smallest."""
    values = {}
    for name, field in MESSAGES[message].items():
        if chance.random() < 0.7:
            many = [random_value(field.kind, chance, depth) for _ in range(chance.randrange(4) if field.repeated else 1)]
            values[name] = many if field.repeated else many[0]
    return values


def decode(message, data):
    """Returns the message's values by name. Messages within it stay bytes, and a repeated field has its last value."""
    names = {field.number: (name, field.kind) for name, field in MESSAGES[message].items()}
    values, at = {}, 0

    def number():
        nonlocal at
        shift = result = 0
        while True:
            byte = data[at]
            at += 1
            result |= (byte & 127) << shift
            if byte < 128:
                return result
            shift += 7

    while at < len(data):
        key = number()
        wire, (name, kind) = key & 7, names.get(key >> 3, ("unknown", "bytes"))
        if wire == 0:
            values[name] = number()
            continue
        size = number() if wire == 2 else {1: 8, 5: 4}[wire]
        piece, at = data[at:at + size], at + size
        values[name] = piece if wire == 2 else struct.unpack("<d" if kind == "double" else "<f" if kind == "float" else
                                                             "<Q" if size == 8 else "<I", piece)[0]
    return values
