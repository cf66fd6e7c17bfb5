#!/usr/bin/env python3
"""Brings a tree of Sluice to the layout of layout.map. It can be run on any branch, again and again: what is new stays.

usage: apply.py move         files, includes, CMake lists, mentions of paths (commit that alone)
       apply.py cut          declarations that go to a header of their own (cuts.txt)
       apply.py locals       file-local names that two sources of a target have get the name of their file (for unity builds)
       apply.py namespaces   namespaces, and the names that need one said
       apply.py all          the four, one after the other (each is a commit of its own: run them one by one)
       apply.py check        what holds of the new layout, without a compiler; exits 1 and names what does not
       apply.py plan         what `move` would do, one line a file
"""
import pathlib
import re
import subprocess
import sys

import checks
import cmake_lists
import cuts
import file_locals
import namespaces
import text_paths
from layout_map import folder_of, moves_of, read_map, tracked

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+[<"]([^>"]+)[>"]', re.M)
# What an include of outside needs linked; what is not here comes with the rest or is headers alone.
OUTSIDE = [("absl/strings/str_format", "absl::str_format"), ("absl/strings", "absl::strings"), ("absl/status/statusor", "absl::statusor"),
           ("absl/status", "absl::status"), ("absl/time", "absl::time"), ("absl/types/span", "absl::span"), ("grpcpp", "gRPC::grpc++"),
           ("hwy/", "hwy::hwy"), ("openssl/", "OpenSSL::Crypto")]


def read(path):
    try:
        return (ROOT / path).read_bytes().decode()
    except UnicodeDecodeError:
        return None


def git(*arguments):
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, stdout=subprocess.DEVNULL)


def format_sources(paths):
    """As clang-format writes them: includes are sorted by their new names."""
    paths = [path for path in paths if re.search(r"\.(h|cc|cu|cuh)$", path)]
    for at in range(0, len(paths), 100):
        subprocess.run(["clang-format-14", "-i", *paths[at:at + 100]], check=True, cwd=ROOT)


def write(path, text):
    (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
    (ROOT / path).write_bytes(text.encode())


def cmake_texts(layout, paths, moves, texts):
    """{new path: text} of all CMakeLists.txt files."""
    new_includes = {}
    for path in paths:
        if re.search(r"\.(h|cc|cu|cuh|in)$", path):
            new_includes[moves[path]] = INCLUDE.findall(texts[path])
    def includes(path, prefix=None):
        found = new_includes.get(path, [])
        if prefix:
            return [include for include in found if include.startswith(prefix)]
        return [moves[include] for include in found if include in moves]
    def outside(path):
        return list(dict.fromkeys(next((target for start, target in OUTSIDE if include.startswith(start)), None)
                                  for include in new_includes.get(path, []) if any(include.startswith(start) for start, _ in OUTSIDE)))
    lists = {path: texts[path] for path in paths if path.endswith("CMakeLists.txt")}
    built = cmake_lists.Builds(layout, moves, lists, includes, outside).texts()
    return {(folder + "/" if folder else "") + "CMakeLists.txt": text for folder, text in built.items()}


def is_new(layout, moves):
    return not any(old != new for old, new in moves.items())


def move(layout, dry=False):
    paths = tracked(ROOT)
    moves = moves_of(layout, paths)
    if is_new(layout, moves):
        print("every file is where layout.map has it")
        return
    if dry:
        for old, new in moves.items():
            if old != new:
                print(f"{old} -> {new}")
        return
    texts = {path: text for path in paths if (text := read(path)) is not None}
    mentions = text_paths.Mentions(layout, moves)
    lists = {path: re.sub(r"^[ \t]*#.*$", lambda line: mentions.rewrite(path, path, line[0]), text, flags=re.M)
             for path, text in cmake_texts(layout, paths, moves, texts).items()}
    new_texts = {}
    for old, text in texts.items():
        if old.endswith("CMakeLists.txt") or text_paths.UNTOUCHED.match(old):
            continue
        new_texts[moves[old]] = (text, mentions.rewrite(old, moves[old], text))
    for old in paths:
        new = moves[old]
        if old.endswith("CMakeLists.txt"):
            if new not in lists or old != new:
                git("rm", "-q", "--cached", old)
                (ROOT / old).unlink()
        elif old != new:
            (ROOT / new).parent.mkdir(parents=True, exist_ok=True)
            git("mv", old, new)
    changed = []
    for path, (before, after) in new_texts.items():
        if before != after:
            write(path, after)
            changed.append(path)
    for path, text in lists.items():
        write(path, text)
    for path, old, new in edits():
        text = read(path)
        if text is not None and new not in text:
            if old not in text:
                print(f"edit by hand: {path} has no longer:\n{old}")
            else:
                write(path, text.replace(old, new))
    write("tools/layers.txt", (HERE / "layers.txt").read_text())
    page = read("docs/architecture.md")
    write("docs/architecture.md", re.sub(r"^## (?:Rooms|Layers)\n.*?(?=^\*\*Pure\*\* means)",
                                         lambda _: (HERE / "layers.md").read_text() + "\n", page, flags=re.M | re.S))
    format_sources(changed)
    git("add", "-A")
    print(f"{sum(old != new for old, new in moves.items())} files moved, {len(changed)} changed, {len(lists)} CMakeLists.txt")
    for line in mentions.unresolved:
        print(f"looks like a path and is none: {line}")


def relink(layout):
    """Links as includes are now."""
    paths = tracked(ROOT)
    texts = {path: text for path in paths if (text := read(path)) is not None}
    for path, text in cmake_texts(layout, paths, {path: path for path in paths}, texts).items():
        if texts.get(path) != text:
            write(path, text)


def edits():
    """(path, old text, new text): what neither a path nor an include says. edits.txt has them, divided by lines of = and -."""
    for part in re.split(r"^={5,}\n", (HERE / "edits.txt").read_text(), flags=re.M)[1:]:
        path, old, new = re.split(r"^-{5,}\n", part, flags=re.M)
        yield path.strip(), old.rstrip("\n"), new.rstrip("\n")


def main():
    step = sys.argv[1] if len(sys.argv) == 2 else ""
    if step == "all":
        for part in ("move", "cut", "namespaces", "locals"):
            subprocess.run([sys.executable, __file__, part], check=True)
        return
    layout = read_map()
    if step == "move":
        move(layout)
    elif step == "plan":
        move(layout, dry=True)
    elif step == "cut":
        format_sources(cuts.apply(ROOT, tracked(ROOT)))
        relink(layout)
    elif step == "namespaces":
        format_sources(namespaces.apply(ROOT, layout, tracked(ROOT)))
    elif step == "locals":
        format_sources(file_locals.apply(ROOT, tracked(ROOT)))
        file_locals.lists(ROOT, tracked(ROOT))
    elif step == "check":
        sys.exit(checks.check(ROOT, layout, tracked(ROOT)))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
