#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`sluice patch` as a user calls it: a chain of versions, wrong bases, damaged files and interrupted writes.

usage: patch_test.py FOLDER_OF_PROGRAMS [unittest arguments]
"""
import hashlib
import json
import pathlib
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

import patch_reader

BIN = pathlib.Path()
LIMIT = 120  # Timeout in seconds.
CHUNK = 1 << 20


def safetensors(weights, shapes, dtype="BF16", metadata=None):
    """A file in the format of Hugging Face, made without Sluice. `weights` are bytes; the tensors are t0, t1 and so on."""
    width = {"BF16": 2, "F16": 2, "F32": 4}[dtype]
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for number, shape in enumerate(shapes):
        size = width
        for dimension in shape:
            size *= dimension
        header[f"t{number}"] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + weights


def digest(weights, width=2):
    chunks = (weights[at:at + CHUNK * width] for at in range(0, len(weights), CHUNK * width))
    return hashlib.sha256(b"".join(hashlib.sha256(chunk).digest() for chunk in chunks)).hexdigest()


class Patch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.random = random.Random(1)

    def sluice(self, *arguments, code=0, **options):
        done = subprocess.run([str(BIN / "sluice"), "patch", *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, timeout=LIMIT,
                              **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def nudged(self, weights, share=0.01):
        """Adds one to the bit pattern of some 16-bit weights."""
        weights = bytearray(weights)
        for _ in range(int(len(weights) // 2 * share)):
            at = 2 * self.random.randrange(len(weights) // 2)
            pattern = (struct.unpack_from("<H", weights, at)[0] + 1) % 65536
            struct.pack_into("<H", weights, at, pattern)
        return bytes(weights)

    def make_chain(self, versions=4, elements=30_000):
        """Writes v0.safetensors to vN.safetensors and the patches between them. Returns the weights."""
        shapes = [[100, elements // 100 - 1], [100], []]
        weights = [self.random.randbytes(2 * elements + 2)]
        for version in range(versions):
            if version:
                weights.append(self.nudged(weights[-1]))
            (self.folder / f"v{version}.safetensors").write_bytes(safetensors(weights[-1], shapes, metadata={"format": "pt"}))
            if version:
                self.sluice("make", f"v{version - 1}.safetensors", f"v{version}.safetensors", "-o", f"{version}.sluicepatch", "--model-version", version)
        return weights

    def read(self, name):
        return (self.folder / name).read_bytes()

    def test_a_chain_of_patches(self):
        weights = self.make_chain()
        patches = [f"{version}.sluicepatch" for version in (1, 2, 3)]
        for name in patches:
            self.assertLess(len(self.read(name)), len(weights[0]) / 50)
        output = self.sluice("verify", *patches)
        self.assertEqual(output.splitlines()[2], f"3.sluicepatch: ok, patch from version 2 to 3, digest {digest(weights[3])}")
        self.sluice("verify", *patches, "--base", "v0.safetensors")
        output = self.sluice("apply", "v0.safetensors", *patches, "-o", "new.safetensors")
        self.assertEqual(output, f"new.safetensors: digest {digest(weights[3])}\n")
        self.assertEqual(self.read("new.safetensors"), self.read("v3.safetensors"))

    def test_a_model_can_be_replaced_in_place(self):
        self.make_chain(2)
        self.sluice("apply", "v0.safetensors", "1.sluicepatch", "--output", "v0.safetensors")
        self.assertEqual(self.read("v0.safetensors"), self.read("v1.safetensors"))

    def test_an_anchor_replaces_the_model(self):
        weights = self.make_chain(3)
        self.sluice("anchor", "v1.safetensors", "-o", "anchor.sluicepatch", "--model-version", 1)
        self.assertIn("30001 weights, ", self.sluice("info", "anchor.sluicepatch"))
        self.sluice("apply", "anchor.sluicepatch", "2.sluicepatch", "-o", "new.safetensors")
        self.assertTrue(self.read("new.safetensors").endswith(weights[2]))
        header = json.loads(self.read("new.safetensors")[8:].split(b"}}")[0] + b"}}")
        self.assertEqual(header["t0"], {"dtype": "BF16", "shape": [100, 299], "data_offsets": [0, 59800]})
        # An anchor also continues a chain from any version.
        self.sluice("apply", "v0.safetensors", "anchor.sluicepatch", "2.sluicepatch", "-o", "again.safetensors")
        self.assertTrue(self.read("again.safetensors").endswith(weights[2]))
        self.sluice("verify", "1.sluicepatch", "anchor.sluicepatch", "2.sluicepatch")
        self.assertIn("which needs a model", self.sluice("apply", "2.sluicepatch", "-o", "x", code=1))

    def test_info(self):
        weights = self.make_chain(2)
        output = self.sluice("info", "1.sluicepatch")
        self.assertIn("1.sluicepatch: patch from version 0 to 1", output)
        self.assertIn(digest(weights[1]), output)
        facts = json.loads(self.sluice("info", "--json", "1.sluicepatch"))[0]
        changed = sum(weights[0][at:at + 2] != weights[1][at:at + 2] for at in range(0, len(weights[0]), 2))
        self.assertEqual({key: facts[key] for key in ("anchor", "base_version", "version", "type", "elements", "changed", "bytes", "base", "digest")},
                         {"anchor": False, "base_version": 0, "version": 1, "type": "BF16", "elements": 30_001, "changed": changed,
                          "bytes": len(self.read("1.sluicepatch")), "base": digest(weights[0]), "digest": digest(weights[1])})

    def test_every_type_and_an_empty_model(self):
        for dtype, width in (("BF16", 2), ("F16", 2), ("F32", 4)):
            for elements in (0, 1, 500):
                for name in ("old", "new"):
                    weights = self.random.randbytes(width * elements)
                    (self.folder / name).write_bytes(safetensors(weights, [[elements]], dtype))
                self.sluice("make", "old", "new", "-o", "p")
                self.sluice("apply", "old", "p", "-o", "result")
                self.assertEqual(self.read("result"), self.read("new"))

    def test_a_reader_written_from_the_page_agrees(self):
        codings = set()
        for dtype, width in (("BF16", 2), ("F32", 4)):
            for share, clustered in ((1, False), (0.3, False), (0.1, False), (0.04, False), (0.01, False), (0.05, True), (0.001, False)):
                old = self.random.randbytes(width * 9000)
                new = bytearray(old)
                for _ in range(int(9000 * share)):
                    element = self.random.randrange(9000)
                    if clustered:
                        element = 900 * (element // 900) + element % 40
                    at = width * element
                    new[at + self.random.choice((0, 0, 0, 0, width - 1))] ^= self.random.choice((1, 1, 1, 3, 9))
                (self.folder / "old").write_bytes(safetensors(old, [[9000]], dtype))
                (self.folder / "new").write_bytes(safetensors(bytes(new), [[9000]], dtype))
                self.sluice("make", "old", "new", "-o", "p")
                weights, used = patch_reader.apply(self.read("p"), old)
                self.assertEqual(weights, bytes(new))
                codings |= used
        self.assertTrue(0 in codings and 96 in codings and any(0 < coding < 32 for coding in codings) and any(32 <= coding < 64 for coding in codings),
                        codings)

    def test_a_wrong_base_is_refused(self):
        weights = self.make_chain()
        before = self.names()
        error = self.sluice("apply", "v0.safetensors", "2.sluicepatch", "-o", "new.safetensors", code=1)
        self.assertIn(f"error: 2.sluicepatch: the patch to version 2 needs version 1 with digest {digest(weights[1])}", error)
        self.assertIn(f"but the model has digest {digest(weights[0])}", error)
        self.assertIn("needs version 1", self.sluice("verify", "2.sluicepatch", "--base", "v0.safetensors", code=1))
        self.assertIn("the patch before it leads to version 1", self.sluice("verify", "1.sluicepatch", "3.sluicepatch", code=1))
        self.assertEqual(self.names(), before)

    def test_other_tensors_and_types_are_refused(self):
        self.make_chain(2)
        weights = self.read("v0.safetensors")[-60_002:]
        (self.folder / "flat").write_bytes(safetensors(weights, [[30_001]]))
        (self.folder / "half").write_bytes(safetensors(weights, [[100, 299], [100], []], "F16"))
        self.assertIn("names, shapes and order must be equal", self.sluice("apply", "flat", "1.sluicepatch", "-o", "x", code=1))
        self.assertIn("weights of type BF16, but half has F16", self.sluice("apply", "half", "1.sluicepatch", "-o", "x", code=1))
        self.assertIn("tensor 0 is `t0` in flat", self.sluice("make", "flat", "v0.safetensors", "-o", "x", code=1))
        self.assertIn("has weights of type F16", self.sluice("make", "half", "v0.safetensors", "-o", "x", code=1))
        self.assertIn("a patch leads to a higher version",
                      self.sluice("make", "v0.safetensors", "v1.safetensors", "-o", "x", "--model-version", 3, "--base-version", 3, code=1))

    def test_damaged_files_are_refused(self):
        self.make_chain(2)
        intact = self.read("1.sluicepatch")
        for at in range(0, len(intact), 7):
            (self.folder / "bad").write_bytes(intact[:at] + bytes([intact[at] ^ 16]) + intact[at + 1:])
            self.sluice("apply", "v0.safetensors", "bad", "-o", "x", code=1) if at % 5 == 0 else self.sluice("verify", "bad", code=1)
        for size in (0, 7, 100, 152, 159, len(intact) - 1):
            (self.folder / "bad").write_bytes(intact[:size])
            self.assertIn("error: bad: the patch", self.sluice("verify", "bad", code=1))
        model = self.read("v0.safetensors")
        for content in (b"", model[:-1], model + b"x", b"PK" + model):
            (self.folder / "bad").write_bytes(content)
            self.assertIn("error: bad: ", self.sluice("apply", "bad", "1.sluicepatch", "-o", "x", code=1))
        self.assertNotIn("x", self.names())

    def test_a_failed_write_leaves_the_old_file(self):
        self.make_chain(2)
        before = {name: self.read(name) for name in self.names()}

        def no_disk():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

        error = self.sluice("apply", "v0.safetensors", "1.sluicepatch", "-o", "v0.safetensors", code=1, preexec_fn=no_disk)
        self.assertIn("cannot write", error)
        self.assertEqual({name: self.read(name) for name in self.names()}, before)

    def test_wrong_usage(self):
        self.make_chain(2)
        for arguments in ([], ["make"], ["apply", "v0.safetensors"], ["make", "v0.safetensors", "v1.safetensors"], ["verify"], ["info"]):
            self.sluice(*arguments, code=2)
        self.assertIn("cannot open absent", self.sluice("apply", "absent", "1.sluicepatch", "-o", "x", code=1))
        self.assertIn("cannot open absent", self.sluice("info", "absent", code=1))


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
