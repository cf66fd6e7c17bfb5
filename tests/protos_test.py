"""The check of released numbers itself: finds a moved number, another type, a field that is gone; lets new ones be."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent / "tools/check_protos.py"
BEFORE = """syntax = "proto3";
package demo;
message Request { uint32 step = 1; repeated string names = 2; Kind kind = 3; }
enum Kind { KIND_UNSPECIFIED = 0; KIND_FAST = 1; }
service Asker { rpc Ask(Request) returns (Request); }
"""


def change(*replacements):
    """What the check says of the file of before with these changes."""
    with tempfile.TemporaryDirectory() as folder:
        proto = pathlib.Path(folder) / "proto/demo.proto"
        proto.parent.mkdir()
        proto.write_text(BEFORE)
        subprocess.run([sys.executable, str(TOOL), folder, "--record"], check=True)
        text = BEFORE
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        proto.write_text(text)
        return subprocess.run([sys.executable, str(TOOL), folder], capture_output=True, text=True)


class ProtosTest(unittest.TestCase):
    def test_nothing_changed(self):
        self.assertEqual(change().returncode, 0)

    def test_what_is_new_is_free(self):
        done = change(("Kind kind = 3;", "Kind kind = 3; uint64 term = 4;"), ("KIND_FAST = 1;", "KIND_FAST = 1; KIND_SLOW = 2;"))
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_another_number(self):
        done = change(("step = 1", "step = 9"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("demo.Request.step was released as `1 uint32` and is `9 uint32`", done.stdout)

    def test_another_type(self):
        self.assertIn("demo.Request.step", change(("uint32 step", "uint64 step")).stdout)
        self.assertIn("demo.Request.names", change(("repeated string", "string")).stdout)

    def test_a_field_that_is_gone_must_be_reserved(self):
        self.assertIn('write `reserved 1; reserved "step";`', change(("uint32 step = 1;", "")).stdout)
        self.assertIn("demo.Request.step", change(("uint32 step = 1;", "reserved 1;")).stdout)
        self.assertEqual(change(("uint32 step = 1;", 'reserved 1; reserved "step";')).returncode, 0)

    def test_enum_values(self):
        self.assertIn("demo.Kind.KIND_FAST", change(("KIND_FAST = 1", "KIND_FAST = 2")).stdout)
        self.assertEqual(change(("KIND_FAST = 1;", 'reserved 1; reserved "KIND_FAST";')).returncode, 0)

    def test_methods(self):
        self.assertIn("demo.Asker.Ask", change(("rpc Ask(Request)", "rpc Ask(stream Request)")).stdout)
        self.assertIn("is gone", change(("rpc Ask(Request) returns (Request);", "")).stdout)


if __name__ == "__main__":
    unittest.main()
