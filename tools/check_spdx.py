#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists tracked sources without a line that names their licence in SPDX's terms, or adds these lines.

usage: check_spdx.py ROOT          exits with 1 if a source lacks the line
       check_spdx.py ROOT --fix    adds the line at the top of each of them, below the line `#!` if there is one
A source is a file of C++, CUDA, protobuf, Python, shell or CMake. Files that a script generates get the line from the script.
"""
import pathlib
import subprocess
import sys

LINE = "SPDX-License-Identifier: Apache-2.0"
COMMENTS = {".h": "//", ".cc": "//", ".cu": "//", ".cuh": "//", ".proto": "//", ".py": "#", ".sh": "#", ".cmake": "#"}
FIRST_LINES = 3  # The line must be among these.


def comment_of(path, first_line):
    """How a comment of this file begins, or None if the file is no source."""
    if path.name == "CMakeLists.txt" or (first_line.startswith("#!") and not path.suffix):
        return "#"
    return COMMENTS.get(path.suffix)


def with_line(text, comment):
    first, newline, rest = text.partition("\n")
    if first.startswith("#!"):
        return f"{first}{newline}{comment} {LINE}\n{rest}"
    return f"{comment} {LINE}\n{text}"


def lacks_line(text):
    return not any(line.endswith(LINE) for line in text.split("\n", FIRST_LINES)[:FIRST_LINES])


def self_test():
    assert with_line("#!/bin/sh\necho\n", "#") == f"#!/bin/sh\n# {LINE}\necho\n"
    assert with_line("int a;\n", "//") == f"// {LINE}\nint a;\n"
    assert not lacks_line(with_line("#!/bin/sh\necho\n", "#"))
    assert lacks_line("a\nb\nc\n// " + LINE)
    assert comment_of(pathlib.Path("a/run"), "#!/bin/sh") == "#" and comment_of(pathlib.Path("a.md"), "# A") is None


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--fix"]):
        sys.exit(__doc__)
    self_test()
    root = pathlib.Path(sys.argv[1])
    lacking = 0
    for name in subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True, capture_output=True, text=True).stdout.split("\0")[:-1]:
        path = root / name
        if path.is_symlink() or not path.is_file() or b"\0" in (content := path.read_bytes())[:1024]:
            continue
        text = content.decode("utf-8", "surrogateescape")
        comment = comment_of(path, text.partition("\n")[0])
        if comment is None or not lacks_line(text):
            continue
        lacking += 1
        if sys.argv[2:]:
            path.write_bytes(with_line(text, comment).encode("utf-8", "surrogateescape"))
        else:
            print(name)
    if lacking and not sys.argv[2:]:
        sys.exit(f"{lacking} sources lack the line `{LINE}`. Run `tools/check_spdx.py ROOT --fix`.")


if __name__ == "__main__":
    main()
