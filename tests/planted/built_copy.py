# SPDX-License-Identifier: Apache-2.0
"""A copy of the tree that a test may change and build."""
import os
import shutil
import subprocess
import sys


class BuiltCopy:
    """A copy of the tree's tracked files, with a build of its own in ROOT/build/FOLDER/tree."""

    def __init__(self, root, folder, unity):
        self.root, self.folder = root, root / "build" / folder / "tree"
        names = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            self.update(name)
        if not (self.folder / ".deps").exists():
            (self.folder / ".deps").symlink_to(root / ".deps")
        self.run("cmake", "--preset", "release", "-DSLUICE_BENCH=OFF", f"-DSLUICE_UNITY={unity}")

    def update(self, name):
        """Keeps the times of files that are the same, so that a second run builds little."""
        source, target = self.root / name, self.folder / name
        if not source.is_file() or (target.exists() and target.read_bytes() == source.read_bytes()):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)

    def environment(self):
        return {**os.environ, "CCACHE_BASEDIR": str(self.folder), "CCACHE_NOHASHDIR": "1"}

    def run(self, *command):
        done = subprocess.run(command, cwd=self.folder, env=self.environment(), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")

    def build(self, *programs):
        self.run("ninja", "-C", "build/release", *programs)
