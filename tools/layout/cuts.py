"""Moves declarations to headers of their own (cuts.txt), and narrows what others include."""
import collections
import pathlib
import re

from checks import INCLUDE, local_names, strip

HERE = pathlib.Path(__file__).resolve().parent
NAMED = [re.compile(r"^(?:enum class|enum|struct|class) (\w+)"), re.compile(r"^(?:inline |static )?constexpr [\w:<>]+ (\w+)"),
         re.compile(r"^[\w:<>,*&\s\[\]]+?[ *&\n]((?:\w+::)?\w+)\(")]


def split_body(text):
    """(before, blocks, after): the declarations between the namespace's braces, each with the comment above it."""
    start = re.search(r"^namespace sluice[\w:]* \{\n", text, re.M)
    end = text.rindex("\n}  // namespace ")
    blocks, block, depth = [], [], 0
    for line in text[start.end():end + 1].splitlines(keepends=True):
        bare = strip(line)
        if not line.strip() and depth == 0:
            if block:
                block.append(line)
                if not all(re.match(r"\s*(//|$)", part) for part in block):
                    blocks.append("".join(block))
                    block = []
            elif blocks:
                blocks[-1] += line
            else:
                block.append(line)
            continue
        block.append(line)
        depth += sum(bare.count(c) for c in "{(") - sum(bare.count(c) for c in "})")
        if depth == 0 and re.search(r"[;}]\s*$", bare) and not re.match(r"namespace \{", line):
            blocks.append("".join(block))
            block = []
    if block:
        blocks.append("".join(block))
    return text[:start.end()], blocks, text[end + 1:]


def name_of(block):
    bare = re.sub(r"^\s*//[^\n]*\n", "", block, flags=re.M).strip()
    for pattern in NAMED:
        match = pattern.match(bare)
        if match:
            return match[1]
    return None


class Files:
    def __init__(self, root):
        self.root, self.texts, self.written = root, {}, set()

    def read(self, path):
        if path not in self.texts:
            file = self.root / path
            self.texts[path] = file.read_text() if file.exists() else None
        return self.texts[path]

    def write(self, path, text):
        if text != self.read(path):
            self.texts[path] = text
            self.written.add(path)

    def flush(self):
        for path in self.written:
            (self.root / path).write_text(self.texts[path])


def take(files, path, names):
    """Removes the blocks of `names` from `path`: [(name, block)]."""
    text = files.read(path)
    if text is None:
        return []
    before, blocks, after = split_body(text)
    taken = [(name_of(block), block) for block in blocks if name_of(block) in names]
    kept = [block for block in blocks if name_of(block) not in names]
    # The unnamed namespace of a source is one block for split_body; names in it are `local`.
    files.write(path, before + "".join(kept) + after)
    return taken


def take_local(files, path, name):
    text = files.read(path)
    form = rf"constexpr \w+ {name} = [^\n]*\n" if name.startswith("k") else rf"[\w:<>,*& ]+[ *&]{name}\(.*?^}}\n\n?"
    match = re.search(rf"(?:^//[^\n]*\n)*^{form}", text or "", re.M | re.S)
    if not match:
        return ""
    rest = text[:match.start()] + text[match.end():]
    files.write(path, re.sub(r"^namespace \{\s*\}  // namespace\n\n?", "\n", rest, flags=re.M))
    return match[0].rstrip("\n") + "\n"


def include_line(word):
    return f"#include {word}\n" if word[0] in '<"' else f'#include "{word}"\n'


def add_includes(text, words):
    words = [word for word in words if include_line(word) not in text]
    if not words:
        return text
    lines = "".join(include_line(word) for word in words)
    last = list(re.finditer(r'^#include "[^"]+"\n', text, re.M))
    if last:
        return text[:last[-1].end()] + lines + text[last[-1].end():]
    pragma = re.search(r"^#pragma once\n", text, re.M)
    at = pragma.end() if pragma else 0
    return text[:at] + "\n" + lines + text[at:]


def source_of(header):
    return header[:-2] + ".cc"


def read_rows():
    for line in (HERE / "cuts.txt").read_text().splitlines():
        words = line.split("#", 1)[0].split() if line.startswith("#") else line.split()
        if words:
            yield words[0], words[1:]


def apply(root, paths):
    files = Files(root)
    readers = readers_of(files, paths)
    parts = collections.defaultdict(lambda: {"summary": "", "include": [], "source": [], "blocks": [], "local": [], "defs": []})
    moved = collections.defaultdict(set)  # {header before: names}
    for kind, words in read_rows():
        if kind == "new":
            parts[words[0]]["summary"] = " ".join(words[1:])
        elif kind in ("include", "source"):
            parts[words[0]][kind] = words[1:]
        elif kind == "take":
            header, old, *names = words
            found = take(files, old, names)
            parts[header]["blocks"] += [block for name, block in found]
            parts[header]["defs"] += [block for name, block in take(files, source_of(old), names)]
            moved[old] |= {name for name, _ in found}
        elif kind == "local":
            header, old, *names = words
            parts[header]["local"] += [block for name in names if (block := take_local(files, source_of(old), name))]
    for header, part in parts.items():
        if part["blocks"]:
            write_header(files, header, part)
    for kind, words in read_rows():
        if kind == "narrow":
            narrow(files, words[0], words[1], words[2:])
        elif kind == "forward":
            forward(files, words[0], words[1:])
    if files.written:
        repair(files, paths, readers, {name for names in moved.values() for name in names})
    files.flush()
    return sorted(files.written)


def write_header(files, header, part):
    body = "\n".join(block.strip("\n") + "\n" for block in part["blocks"])
    text = files.read(header)
    if text is not None:  # One that is there: what is new comes last in it.
        at = text.rindex("\n}  // namespace ")
        files.write(header, add_includes(text[:at].rstrip("\n") + "\n\n" + body + text[at:], part["include"]))
        if part["defs"]:
            source = files.read(source_of(header))
            inner = source.index("\n}  // namespace\n")
            source = source[:inner].rstrip("\n") + "\n\n" + "\n".join(part["local"]) + source[inner:]
            at = source.rindex("\n}  // namespace ")
            source = source[:at].rstrip("\n") + "\n\n" + "\n".join(block.strip("\n") + "\n" for block in part["defs"]) + source[at:]
            files.write(source_of(header), add_includes(source, part["source"]))
        return
    outside = [word for word in part["include"] if word[0] == "<"]
    own = [word for word in part["include"] if word[0] != "<"]
    files.write(header, f"// {part['summary']}\n#pragma once\n\n" + "".join(map(include_line, outside)) + "\n" +
                "".join(map(include_line, own)) + "\nnamespace sluice {\n\n" + body + "\n}  // namespace sluice\n")
    if part["defs"]:
        local = "namespace {\n\n" + "\n".join(part["local"]) + "\n}  // namespace\n\n" if part["local"] else "\n"
        files.write(source_of(header), f'#include "{header}"\n\n' + "".join(map(include_line, part["source"])) +
                    "\nnamespace sluice {\n" + local + "\n".join(block.strip("\n") + "\n" for block in part["defs"]) +
                    "\n}  // namespace sluice\n")
        register(files, header)


def register(files, header):
    """Names a new header and source in the CMakeLists.txt of their library."""
    folder = header.rpartition("/")[0]
    lists = folder + "/CMakeLists.txt"
    text = files.read(lists)
    name = header.rpartition("/")[2]
    if text and name not in text:
        text = re.sub(r"(\bHEADERS )", rf"\g<1>{name} ", text, count=1)
        text = re.sub(r"(\bSOURCES )", rf"\g<1>{source_of(name)} ", text, count=1)
        files.write(lists, text)


def narrow(files, path, old, new):
    text = files.read(path)
    if text is None:
        return
    if old != "-":
        if include_line(old) not in text:
            return
        text = text.replace(include_line(old), "")
    files.write(path, add_includes(text, new))


def forward(files, path, names):
    text = files.read(path)
    if text is None:
        return
    missing = [name for name in names if f"struct {name};\n" not in text]
    if missing:
        start = re.search(r"^namespace sluice[\w:]* \{\n", text, re.M)
        rest = text[start.end():]
        files.write(path, text[:start.end()] + "\n" + "".join(f"struct {name};\n" for name in missing) + rest)


# Headers that others may have read through those that are narrower now.
NEEDS = ["job/job_spec.h", "job/support.h", "job/optimizer_spec.h", "job/training_spec.h", "job/control_spec.h", "job/momentum.h",
         "protocol/compression_spec.h", "protocol/checkpoint/checkpoint_spec.h", "protocol/layout.h", "protocol/tensor_table.h",
         "compress/chunk_config.h", "protocol/wire/exchange_messages.h"]


def is_source(path):
    return re.search(r"\.(h|cc|cu|cuh)$", path)


def closure(includes, path):
    found, todo = set(), [path]
    while todo:
        for include in includes.get(todo.pop(), ()):
            if include in includes and include not in found:
                found.add(include)
                todo.append(include)
    return found


def readers_of(files, paths):
    """Who read all of a job spec before anything was cut."""
    includes = {path: INCLUDE.findall(files.read(path)) for path in paths if is_source(path)}
    cut = {"job/job_spec.h", "job/support.h", "server/rpc/convert.h"}
    return {path for path in includes if cut & (closure(includes, path) | {path})}


def repair(files, paths, readers, moved):
    """Adds includes that a file used to get through another header, by the names that it uses."""
    names = {}
    for header in NEEDS:
        text = files.read(header)
        for block in split_body(text)[1] if text else ():
            name = name_of(block)
            # A header that only received some was not missed for the rest.
            if name and not re.match(r"\s*struct \w+;\s*$", block) and (name in moved or not header.startswith("protocol/wire/")):
                names[name] = header
    known = [path for path in set(paths) | files.written if is_source(path)]
    includes = {path: INCLUDE.findall(files.read(path)) for path in known}
    pattern = re.compile(r"(?<![\w.>:])(?:" + "|".join(names) + r")\b")
    # Headers first: what they include, sources need not.
    for path in sorted(known, key=lambda path: (not path.endswith(".h"), path)):
        if path not in readers:
            continue
        text = files.read(path)
        forwards = set(re.findall(r"^struct (\w+);$", text, re.M))
        reached = closure(includes, path) | {path}
        bare = re.sub(r"\bTEST\w*\([^)]*\)", "", strip(text))
        forwards |= {name.split("(")[0] for name in local_names(text)}
        wanted = {names[name] for name in set(pattern.findall(bare)) - forwards
                  if not any(re.search(rf"^(?:class|struct) {name}\b(?!;)", files.read(header), re.M) for header in reached if header != names[name])}
        missing = sorted(wanted - reached)
        # One that brings another is enough.
        missing = [header for header in missing if not any(header in closure(includes, other) for other in missing if other != header)]
        if missing:
            files.write(path, add_includes(text, missing))
            includes[path] = INCLUDE.findall(files.read(path))
