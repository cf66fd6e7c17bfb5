# SPDX-License-Identifier: Apache-2.0
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


ASK = "rpc Ask(Request) returns (Request);"
NOTE = "message Note { string text = 1; }\n"
WITH_NOTE = BEFORE.replace("enum Kind", NOTE + "enum Kind")


def mark(root, removed):
    record = root / "proto/released.txt"
    lines = record.read_text()
    for name in removed:
        assert f"{name} = " in lines
        lines = lines.replace(f"{name} = ", f"{name} = removed ")
    record.write_text(lines)


def change(*replacements, removed=(), before=BEFORE):
    """What the check says of the file of before with these changes, where the lines of `removed` are marked so."""
    with tempfile.TemporaryDirectory() as folder:
        proto = pathlib.Path(folder) / "proto/demo.proto"
        proto.parent.mkdir()
        proto.write_text(before)
        subprocess.run([sys.executable, str(TOOL), folder, "--record"], check=True)
        mark(pathlib.Path(folder), removed)
        text = before
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

    def test_a_new_name_is_free_if_the_field_says_the_old_one(self):
        option = ('import "google/protobuf/descriptor.proto"; extend google.protobuf.FieldOptions { string old_name = 50013; }\n'
                  "message Request")
        renamed = [("message Request", option), ("step = 1", 'round = 1 [(old_name) = "step"]')]
        done = change(*renamed)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        done = change(renamed[0], ("step = 1", 'round = 9 [(old_name) = "step"]'))
        self.assertIn("demo.Request.step was released and is gone", done.stdout)

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
        self.assertIn("is gone", change((ASK, "")).stdout)

    def test_a_method_that_is_marked_removed(self):
        done = change((ASK, ""), removed=["demo.Asker.Ask"])
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_name_of_a_removed_method_is_not_used_again(self):
        done = change((ASK, "rpc Ask(stream Request) returns (Request);"), removed=["demo.Asker.Ask"])
        self.assertEqual(done.returncode, 1)
        self.assertIn("demo.Asker.Ask was removed", done.stdout)

    def test_a_message_that_is_marked_removed(self):
        self.assertIn("demo.Note.text", change((NOTE, ""), before=WITH_NOTE).stdout)
        done = change((NOTE, ""), removed=["demo.Note.text"], before=WITH_NOTE)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_name_of_a_removed_message_is_not_used_again(self):
        done = change((NOTE, "message Note { bytes code = 2; }\n"), removed=["demo.Note.text"], before=WITH_NOTE)
        self.assertEqual(done.returncode, 1)
        self.assertIn("demo.Note still exists, or its name is used again", done.stdout)

    def test_a_field_of_a_message_that_stays_is_reserved_and_not_removed(self):
        done = change(("uint32 step = 1;", ""), removed=["demo.Request.step"])
        self.assertEqual(done.returncode, 1)
        self.assertIn("reserve step there", done.stdout)

    def test_a_new_record_keeps_what_is_removed(self):
        with tempfile.TemporaryDirectory() as folder:
            proto = pathlib.Path(folder) / "proto/demo.proto"
            proto.parent.mkdir()
            proto.write_text(BEFORE)
            record = [sys.executable, str(TOOL), folder, "--record"]
            subprocess.run(record, check=True)
            mark(pathlib.Path(folder), ["demo.Asker.Ask"])
            proto.write_text(BEFORE.replace(ASK, ""))
            subprocess.run(record, check=True)
            self.assertIn("demo.Asker.Ask = removed method .demo.Request .demo.Request\n",
                          (proto.parent / "released.txt").read_text())


if __name__ == "__main__":
    unittest.main()
