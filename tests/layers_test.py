# SPDX-License-Identifier: Apache-2.0
"""The layer check itself: finds a planted include, passes a clean tree."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent / "tools/check_layers.py"


def check(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        files = {"tools/layers.txt": "base : base absl\ncompress : base compress\n", **files}
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return subprocess.run([sys.executable, str(TOOL), folder], capture_output=True, text=True)


class LayersTest(unittest.TestCase):
    def test_clean(self):
        done = check({"base/a.h": "#include <vector>\n#include \"absl/x.h\"\n", "compress/b.h": '#include "base/a.h"\n'})
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_upward_include(self):
        done = check({"base/a.h": '#include "compress/b.h"\n', "compress/b.h": ""})
        self.assertEqual(done.returncode, 1)
        self.assertIn("base/a.h: includes compress/b.h", done.stdout)

    def test_upward_row(self):
        done = check({"tools/layers.txt": "base : base compress\ncompress : compress\n", "base/a.h": ""})
        self.assertEqual(done.returncode, 1)
        self.assertIn("base may include compress, which is above it", done.stdout)

    def test_a_folder_and_its_parts(self):
        done = check({"tools/layers.txt": "compress/codecs : compress\ncompress : compress compress/codecs\n", "compress/b.h": ""})
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_a_row_in_a_free_folder(self):
        done = check({"tools/layers.txt": "base : base\ncli/launch : cli/launch\n", "cli/a.h": '#include "base/b.h"\n',
                      "cli/launch/a.h": '#include "base/b.h"\n', "base/b.h": ""})
        self.assertEqual(done.returncode, 1)
        self.assertIn("cli/launch may not include base", done.stdout)
        self.assertNotIn("cli/a.h", done.stdout)

    def test_outside_library(self):
        done = check({"compress/b.h": "#include <grpcpp/grpcpp.h>\n"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("compress may not include grpcpp", done.stdout)

    def test_messages(self):
        done = check({"compress/b.h": '#include "sluice/v1/job.pb.h"\n'})
        self.assertEqual(done.returncode, 1)

    def test_empty_tree_is_an_error(self):
        self.assertEqual(check({}).returncode, 1)


if __name__ == "__main__":
    unittest.main()
