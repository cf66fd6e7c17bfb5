#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes THIRD_PARTY.md: the Debian packages that the installed programs link, and the licences in their copyright files.

usage: make_third_party.py FILE...            FILE is a program or a shared library of the build
       make_third_party.py FILE... --check    writes nothing and exits with 1 if the page differs
"""
import difflib
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent / "THIRD_PARTY.md"
TITLE = """# Third-party libraries

`tools/make_third_party.py` writes this page. The programs and the library of Sluice (without LibTorch) link these packages of Debian 12; `cmake --install`
copies none of them. A package may contain files, such as tests, under licences that do not apply to its library.
`/usr/share/doc/PACKAGE/copyright` has the full texts.

| package | licences in its copyright file |
|---|---|
"""


def libraries(file):
    """The paths of all shared libraries that the file loads, directly or not."""
    printed = subprocess.run(["ldd", file], check=True, capture_output=True, text=True).stdout
    lost = re.findall(r"(\S+) => not found", printed)
    if lost:
        sys.exit(f"{file}: the system lacks {', '.join(lost)}")
    return re.findall(r"=> (/\S+)", printed)


def package(library):
    path = str(pathlib.Path(library).resolve())
    # Debian 12 lists libraries below /lib under that name, although /lib is a link to /usr/lib.
    for name in (path, path.removeprefix("/usr")):
        found = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    sys.exit(f"{path} belongs to no Debian package, so its licence is unknown: describe it by hand")


def licences(text):
    """The short names of the licences in a copyright file. An empty list means that the file has no fields to read."""
    if not text.startswith("Format:"):
        return []
    return sorted({name.strip() for name in re.findall(r"^License:[ \t]*(\S.*)$", text, re.M)}, key=str.lower)


def self_test():
    text = "Format: x\n\nFiles: *\nLicense: MIT\n\nFiles: b\nLicense: Apache-2.0\n text\n\nLicense: MIT\n"
    assert licences(text) == ["Apache-2.0", "MIT"]
    assert licences("This package was made by\nLicense: MIT\n") == []


def main():
    arguments = sys.argv[1:]
    check = arguments[-1:] == ["--check"]
    files = arguments[:-1] if check else arguments
    if not files:
        sys.exit(__doc__)
    self_test()
    rows = []
    linked = {library for file in files for library in libraries(file)}
    for name in sorted({package(library) for library in linked}):
        text = pathlib.Path("/usr/share/doc", name, "copyright").read_text()
        rows.append(f"| {name} | {', '.join(licences(text)) or 'see its copyright file'} |\n")
    wanted = TITLE + "".join(rows)
    if check:
        page = PAGE.read_text() if PAGE.exists() else ""
        difference = "".join(difflib.unified_diff(page.splitlines(True), wanted.splitlines(True), "THIRD_PARTY.md", "what is linked"))
        sys.exit(f"{difference}Run tools/make_third_party.py." if difference else 0)
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
