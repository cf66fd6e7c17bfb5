#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reference of the Python package (tools/make_python_reference.py): all public names have complete docstrings, and each gap is found.

usage: python_reference_test.py ROOT
"""
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tools"))
import make_python_reference as reference  # noqa: E402

INIT = '''"""A package."""
from ._base import Base
from ._part import Thing, act
__all__ = ["Base", "Thing", "act"]
'''
BASE = '''class Base:
    """A base. `act` uses it."""
    def stop(self) -> None:
        """Stops."""
'''
PART = '''from ._base import Base
class _Hidden(Base):
    def go(self, steps: int = 1, **options: int) -> int:
        """Goes on, as docs/python.md says.

        Args:
            steps: How many,
                at least 1.
            **options: Others.

        Returns:
            The ``step``.

        Raises:
            Error: Never, since arXiv:1234.56789.
        """
        if steps < 1:
            raise Error("no")
        return 1
class Thing(_Hidden):
    """A thing. `go` is the same as `Thing.go`, and `no` is nothing.

    Attributes:
        size: In bytes.
    """
    @property
    def size(self) -> int:
        return 1
def act(thing: Thing, _own: int = 0) -> None:
    """Acts.

    Args:
        thing: The thing.
    """
'''


class Small(unittest.TestCase):
    """A small package, and faults in it."""

    def page(self, part=PART, init=INIT):
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder) / reference.PACKAGE
            package.mkdir(parents=True)
            for name, text in {"__init__": init, "_base": BASE, "_part": part}.items():
                (package / f"{name}.py").write_text(text)
            for name in reference.MODULES[1:]:
                (package / f"{name}.py").write_text('"""A module."""\n__all__ = []\n')
            return reference.make_page(pathlib.Path(folder))

    def test_the_page(self):
        text, faults = self.page()
        self.assertEqual(faults, [])
        self.assertIn("#### `sluice.Thing.go`\n\n```python\ngo(steps: int = 1, **options: int) -> int\n```\n\nGoes on, as [python.md](python.md) says.", text)
        self.assertIn("\n- `steps`: How many, at least 1.\n- `**options`: Others.\n", text)
        self.assertIn("**Returns:** The `step`.", text)
        self.assertIn("[arXiv:1234.56789](https://arxiv.org/abs/1234.56789)", text)
        self.assertIn("[`go`](#sluicethinggo) is the same as [`Thing.go`](#sluicethinggo), and `no` is nothing.", text)
        self.assertIn("A base. [`act`](#sluiceact) uses it.", text)
        self.assertIn("sluice.act(thing: Thing) -> None", text)
        self.assertIn("#### `sluice.Base.stop`", text)
        self.assertNotIn("#### `sluice.Thing.stop`", text)  # Its public base class has it.

    def test_gaps(self):
        for old, new, fault in (
            ('"""Acts.\n\n    Args:\n        thing: The thing.\n    """', "pass", "sluice.act has no docstring"),
            ('"""A thing. `go` is the same as `Thing.go`, and `no` is nothing.\n\n    Attributes:\n        size: In bytes.\n    """', "pass", "sluice.Thing has no docstring"),
            ("        thing: The thing.", "        other: The thing.", "sluice.act does not explain the argument `thing`"),
            ("        size: In bytes.", "        weight: In bytes.", "sluice.Thing.size has no docstring"),
            ("            **options: Others.\n", "", "sluice.Thing.go does not explain the argument `**options`"),
            ("        Returns:\n            The ``step``.\n", "", "sluice.Thing.go does not explain its result"),
            ("        Raises:\n            Error: Never, since arXiv:1234.56789.\n", "", "sluice.Thing.go raises an error, and its docstring has no section"),
            ("            steps: How many,", "            steps = How many,", "`steps = How many, at least 1.` is not `name: text`"),
            ("    @property\n", "    def __init__(self, room: int) -> None: ...\n    @property\n", "sluice.Thing does not explain the argument `room`"),
        ):
            with self.subTest(fault=fault):
                self.assertIn(old, PART)
                _, faults = self.page(PART.replace(old, new))
                self.assertTrue(any(fault in found for found in faults), faults)

    def test_a_name_that_is_not_there(self):
        _, faults = self.page(init=INIT.replace('"act"]', '"act", "Lost"]'))
        self.assertEqual(faults, ["sluice.Lost: no function or class in the package has this name"])


class Real(unittest.TestCase):
    def test_the_package(self):
        text, faults = reference.make_page(ROOT)
        self.assertEqual(faults, [])
        for name in ("attach", "launch", "Session.join", "Session.log_to", "compress.Codec.encode", "lightning.SluiceCallback"):
            self.assertIn(f"# `sluice.{name}`", text)
        for target in re.findall(r"\]\(([\w-]+\.md)\)", text):
            self.assertTrue((ROOT / "docs" / target).exists(), target)


if __name__ == "__main__":
    unittest.main()
