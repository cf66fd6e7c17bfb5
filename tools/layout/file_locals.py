"""Makes names of unnamed namespaces differ where two sources of a target have the same, so that a unity build may take both.

A name gets the name of its file before it: kBlock of fp8.cc is kFp8Block. STEMS has those that are written otherwise.
"""
import collections
import posixpath
import re

import cmake_lists
from checks import Tree, collisions
from namespaces import Unit, IS_SOURCE

STEMS = {"intsum": "IntSum", "lsh": "Lsh", "blocktopk": "BlockTopK", "randomk": "RandomK", "terngrad": "TernGrad", "powersgd": "PowerSgd",
         "countsketch": "CountSketch", "qsgd": "Qsgd", "fp8": "Fp8"}
VERBS = {"Bad", "Decode", "Encode", "EncodeDecode", "ExpectSame", "ExpectSameSum", "JobOn", "Push", "Select", "Split"}
# Found by the type of what they are given.
BY_TYPE = {"PrintTo", "AbslStringify"}
# Not names at all, or ones that may be said twice.
NONE = {"INSTANTIATE_TEST_SUITE_P", "nn", "fs", "hn", "optim", "uint64_t"}


def stem_of(path):
    stem = posixpath.splitext(posixpath.basename(path))[0].removesuffix("_test")
    return STEMS.get(stem) or "".join(part.capitalize() for part in stem.split("_"))


def renamed(name, path):
    stem = stem_of(path)
    if re.match(r"k[A-Z]", name):
        return f"k{stem}{name[1:]}"
    return name + stem if name in VERBS else stem + name


def found(root, paths):
    """{target: {name: sources}}: a name of an unnamed namespace that another source, or a header that only others read, has too."""
    tree = Tree(root, paths)
    units = {path: Unit(text) for path, text in tree.texts.items() if IS_SOURCE.search(path) and not path.startswith("tools/")}
    result = {}
    exact = collisions(tree)
    apart = {command.words()[0] for path in paths if path.endswith("CMakeLists.txt")
             for command in cmake_lists.parse(tree.texts[path])[0] if "APART" in command.words()}
    for target, sources in tree.targets().items():
        if target not in apart and target not in exact:
            continue
        sources = [source for source in dict.fromkeys(sources) if source in units and "foreach_target" not in units[source].text]
        if len(sources) < 2:
            continue
        by_name = collections.defaultdict(list)
        for source in sources:
            for name in units[source].unnamed - BY_TYPE - NONE:
                by_name[name].append(source)
        read = {source: tree.closure(source) for source in sources}
        declared = collections.defaultdict(set)  # {name: headers}
        for header in set().union(*read.values()):
            if header in units:
                for namespace, names in units[header].declares.items():
                    for name in names:
                        declared[name].add((header, namespace))
        clashes = {}
        for name, files in by_name.items():
            spaces = {space for file in files for space in units[file].declares} | {"sluice"}
            foreign = [header for header, namespace in declared.get(name, ())
                       if any(namespace in (space, "sluice") for space in spaces) and any(header not in read[file] for file in files)]
            same = {file for other, where in exact.get(target, {}).items() if other.split("(")[0] == name
                    for file in where}
            if name in VERBS and len(files) > 1:  # Overloads of several files would be ambiguous.
                same |= {posixpath.normpath(file) for file in files}
            # A constant of a function would hide that of another file, which -Wshadow refuses.
            hidden = any(re.search(rf"^[ \t]+(?:static )?const(?:expr)? .*\b{name}(?:\[\w*\])? ?[={{]", units[source].text, re.M)
                         for source in sources if name.startswith("k") and [source] != files)
            if same or foreign or hidden:
                clashes[name] = [file for file in files if foreign or hidden or posixpath.normpath(file) in same]
        if clashes:
            result[target] = clashes
    return result


def apply(root, paths):
    todo = collections.defaultdict(set)
    for target, clashes in found(root, paths).items():
        for name, files in clashes.items():
            for file in files:
                todo[file].add(name)
    written = []
    for path, names in sorted(todo.items()):
        unit = Unit((root / path).read_text())
        text = unit.text
        for start, end, word, classes, kind, before in sorted(unit.tokens, reverse=True, key=lambda token: token[0]):
            # A constructor has the name of its class.
            if word in names and not before and not any(word in unit.members.get(part, ()) for part in classes if part != word):
                new = renamed(word, path)
                if re.search(rf"\b{new}\b", unit.text) and not re.search(rf"^constexpr \w+ {word} = {new};", unit.text, re.M):
                    new = f"{word}Of{stem_of(path)}"
                text = text[:start] + new + text[end:]
        # What was another name for a constant of a header is that one now.
        text = re.sub(r"^constexpr \w+ (k\w+) = \1;\n", "", text, flags=re.M)
        if text != unit.text:
            (root / path).write_text(text)
            written.append(path)
    return written


# Text of cmake/sluice_targets.cmake that is there for APART, and the text in its place.
APART = [(" APART: not this target's, whose sources have file-local names in common.", ""),
         ("function(sluice_unity target apart)\n  if(SLUICE_UNITY AND NOT \"${apart}\")", "function(sluice_unity target)\n  if(SLUICE_UNITY)"),
         ("PRIVATE deps [APART])", "PRIVATE deps)"), ('"APART" "" "HEADERS;', '"" "" "HEADERS;'),
         ('sluice_unity(sluice_${name} "${ARG_APART}")', "sluice_unity(sluice_${name})"),
         ("[SINGLE_THREADED] [APART])", "[SINGLE_THREADED])"), (";SINGLE_THREADED;APART", ";SINGLE_THREADED"),
         ('sluice_unity(${name} "${ARG_APART}")', "sluice_unity(${name})")]


def lists(root, paths):
    """CMakeLists.txt without APART; sources that compile themselves for several instruction sets stay apart."""
    targets = root / "cmake/sluice_targets.cmake"
    text = targets.read_text()
    for old, new in APART:
        text = text.replace(old, new)
    targets.write_text(text)
    for path in paths:
        if not path.endswith("CMakeLists.txt"):
            continue
        text = (root / path).read_text()
        new = re.sub(r"(sluice_(?:library|test)\([^)]*?) APART", r"\1", text)
        if path in ("compress/CMakeLists.txt", "server/shard/CMakeLists.txt") and "SKIP_UNITY_BUILD_INCLUSION" not in new:
            folder = path.rpartition("/")[0] + "/"
            own = sorted(file.removeprefix(folder) for file in paths if file.startswith(folder) and file.endswith(".cc") and
                         "hwy/foreach_target.h" in (root / file).read_text())
            block = ("# Each is compiled for several instruction sets, which one source of a unity build can be.\nset_source_files_properties(\n  " +
                     "\n  ".join(own) + "\n  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)\n")
            first = re.search(r"sluice_library\((?:[^()]|\([^()]*\))*\)\n", new).end()
            new = new[:first] + block + new[first:]
        if new != text:
            (root / path).write_text(new)
