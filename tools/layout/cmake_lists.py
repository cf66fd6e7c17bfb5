"""Takes CMakeLists.txt files apart into commands and puts them together again for the new folders."""
import posixpath
import re

TOKEN = re.compile(r'#[^\n]*|"(?:[^"\\]|\\.)*"|\s+|[()]|(?:[^\s()#"]|(?<==)"(?:[^"\\]|\\.)*")+')
OPENS = {"if": "endif", "foreach": "endforeach", "function": "endfunction"}
KEYWORDS = {
    "sluice_library": ["HEADERS", "SOURCES", "PUBLIC", "PRIVATE"],
    "sluice_program": ["SOURCES", "LINK"],
    "sluice_test": ["SOURCES", "LINK", "DEFINES", "LABELS", "TIMEOUT", "SHARDS", "PRECOMPILED"],
}
FLAGS = {"APART", "SINGLE_THREADED", "OPTIMIZED"}
WIDTH = 120


class Command:
    """`name(args)`, as it is in the text: `before` has the comments and blank lines ahead of it, `after` a comment behind."""

    def __init__(self, before, name, body, indent, after):
        self.before, self.name, self.body, self.indent, self.after = before, name, body, indent, after

    def words(self):
        return [token for token in TOKEN.findall(self.body) if not token.isspace() and not token.startswith("#")]

    def text(self):
        return f"{self.before}{self.indent}{self.name}({self.body}){self.after}\n"


class Call:
    """A sluice_library, sluice_program or sluice_test, as lists by keyword."""

    def __init__(self, command):
        self.kind = command.name
        words = command.words()
        self.name, self.flags, self.lists = words[0], [], {}
        key = None
        for word in words[1:]:
            if word in FLAGS:
                self.flags.append(word)
            elif word in KEYWORDS[self.kind]:
                key = word
                self.lists.setdefault(key, [])
            else:
                self.lists[key].append(word)

    def body(self, indent):
        lines = [self.name + "".join(" " + flag for flag in self.flags)]
        for key in KEYWORDS[self.kind]:
            if not self.lists.get(key):
                continue
            line = f"{indent}  {key}"
            for word in self.lists[key]:
                if len(line) + 1 + len(word) > WIDTH:
                    lines.append(line)
                    line = f"{indent}  {' ' * len(key)}"
                line += " " + word
            lines.append(line)
        return "\n".join(lines)


def parse(text):
    """The commands of a file, in order, and the text after the last one."""
    commands, before = [], ""
    lines = text.splitlines(keepends=True)
    at = 0
    while at < len(lines):
        start = re.match(r"^(\s*)([A-Za-z_]\w*)\(", lines[at])
        if not start:
            before += lines[at]
            at += 1
            continue
        depth, body, rest = 1, "", lines[at][start.end():]
        while True:
            for token in TOKEN.finditer(rest):
                if token[0] == "(":
                    depth += 1
                elif token[0] == ")":
                    depth -= 1
                    if depth == 0:
                        break
            if depth == 0:
                body += rest[:token.start()]
                after = rest[token.end():].rstrip("\n")
                break
            body += rest
            at += 1
            rest = lines[at]
        commands.append(Command(before, start[2], body, start[1], after))
        before = ""
        at += 1
    return commands, before


def units(commands):
    """Lists of commands that stay together: one alone, or all from an if to its endif."""
    result, open_, closing = [], [], []
    for command in commands:
        open_.append(command)
        if command.name in OPENS:
            closing.append(OPENS[command.name])
        elif closing and command.name == closing[-1]:
            closing.pop()
        if not closing:
            result.append(open_)
            open_ = []
    return result


def relative(path, folder):
    return posixpath.relpath(path, folder or ".")


class Builds:
    """All CMakeLists.txt files of a tree, old and new. `includes(path)`: what a file, by its new path, includes of the tree."""

    def __init__(self, layout, moves, texts, includes, outside):
        self.layout, self.moves, self.includes, self.outside = layout, moves, includes, outside
        self.new_units = {}     # {folder: [units]}
        self.subdirectories = []  # (folder of the old file, unit)
        self.owner = {}         # {new path of a library's file: library}
        self.old_calls = {}     # {old library: Call}
        self.listed = {}        # {library: [new paths], in the old order}
        self.splits = {}
        for old, new, folder in layout.splits:
            self.splits.setdefault(old, []).append((folder, new))
        for path, text in texts.items():
            self._collect(path, text)
        self.link_sets = {}
        self._place(texts)

    def _files(self, call, old_folder):
        for key in ("HEADERS", "SOURCES"):
            for word in call.lists.get(key, []):
                old = posixpath.normpath(posixpath.join(old_folder, word))
                yield key, word, self.moves.get(old)

    def _collect(self, path, text):
        folder = posixpath.dirname(path)
        for command in parse(text)[0]:
            if command.name not in KEYWORDS:
                continue
            call = Call(command)
            if command.name == "sluice_library":
                self.old_calls.setdefault(call.name, []).append(call)
            for key, word, new in self._files(call, folder):
                library = new and self.layout.library_of(new)
                if library and (command.name == "sluice_library" or
                                (command.name == "sluice_program" and posixpath.dirname(new) != self._home_folder(folder))):
                    self.owner[new] = library
                    self.listed.setdefault(library, []).append((key, new))
                elif command.name == "sluice_library":
                    self.listed.setdefault(self.layout.new_target(call.name), []).append((key, word))

    def _home_folder(self, old_folder):
        return posixpath.dirname(self.layout.new_path(posixpath.join(old_folder, "CMakeLists.txt")))

    # Links: what a library's headers include is PUBLIC, what only its sources do is PRIVATE.
    def _uses(self, paths):
        found = []
        for path in paths:
            for include in self.includes(path):
                target = self.owner.get(include) or self.layout.library_of(include)
                if target and target not in found:
                    found.append(target)
        return found

    def _with_own_headers(self, paths):
        """`paths`, and the headers that they include and that no library has."""
        found = list(paths)
        for path in found:
            found += [include for include in self.includes(path)
                      if include not in found and not self.owner.get(include) and not self.layout.library_of(include)]
        return found

    def _library_call(self, name):
        library = self.layout.libraries[name]
        calls = [call for was in library.was for call in self.old_calls.get(was, []) + self._own_call(name, was)]
        call = Call(Command("", "sluice_library", name, "", ""))
        entries = self.listed.get(name, [])
        headers = sorted({new for key, new in entries if key == "HEADERS"})
        sources = sorted({new for key, new in entries if key == "SOURCES"})
        def words(paths):
            return [path if path.startswith("${") else relative(path, library.home) for path in paths]
        call.lists["HEADERS"], call.lists["SOURCES"] = words(headers), words(sources)
        if any("APART" in old.flags for old in calls):
            call.flags = ["APART"]
        public, private = self._uses(headers), self._uses(sources)
        if "sluice::proto" in sum((old.lists.get("PUBLIC", []) for old in calls), []) and self._needs(headers, "sluice/"):
            public.append("proto")
        elif self._needs(headers, "sluice/"):
            public.append("proto")
        elif self._needs(sources, "sluice/"):
            private.append("proto")
        kept = {"PUBLIC": [], "PRIVATE": []}
        for old in calls:
            for key in kept:
                for word in old.lists.get(key, []):
                    target = word.removeprefix("sluice::")
                    if word.startswith("sluice::") and target != "libtorch" and target not in ("proto",):
                        # Its includes say all; what links without an include is kept where there is one library before.
                        if len(library.was) == 1 and name == self.layout.new_target(library.was[0]):
                            (public if key == "PUBLIC" else private).extend(self._successors(target))
                    elif target not in ("proto",):
                        kept[key].append(word)
        came = [new for key, new in entries if key == "SOURCES" and self._came_from_elsewhere(new, library)]
        kept["PRIVATE"] += [word for path in came for word in self.outside(path)]
        public = [target for target in dict.fromkeys(public) if target != name]
        private = [target for target in dict.fromkeys(private) if target != name and target not in public]
        outside_public = list(dict.fromkeys(kept["PUBLIC"]))
        outside_private = [word for word in dict.fromkeys(kept["PRIVATE"]) if word not in outside_public]
        call.lists["PUBLIC"] = ["sluice::" + target for target in sorted(public)] + outside_public
        call.lists["PRIVATE"] = ["sluice::" + target for target in sorted(private)] + outside_private
        self.link_sets[name] = set(public) | set(private)
        return call

    def _own_call(self, name, was):
        """On a tree that has the new layout already, the library's own call."""
        return self.old_calls.get(name, []) if name != was else []

    def _came_from_elsewhere(self, new, library):
        return self.came.get(new) not in library.was + [library.name, None]

    def _needs(self, paths, prefix):
        return any(self.includes(path, prefix) for path in paths)

    def _successors(self, old):
        """The libraries that have what `old` had, the one that takes its place first."""
        return [self.layout.new_target(old)]

    def _place(self, texts):
        self.came = {}
        for path, text in texts.items():
            folder = posixpath.dirname(path)
            for command in parse(text)[0]:
                if command.name in ("sluice_library", "sluice_program"):
                    call = Call(command)
                    for _, _, new in self._files(call, folder):
                        if new:
                            self.came[new] = call.name
        placed = set()
        for path in sorted(texts, key=lambda path: (path.count("/"), path)):
            folder = posixpath.dirname(path)
            home = self._home_folder(folder)
            commands, tail = parse(texts[path])
            self.new_units.setdefault(home, [])
            for unit in units(commands):
                if len(unit) == 1 and unit[0].name == "add_subdirectory":
                    self.subdirectories.append((folder, home, unit[0]))
                    self.new_units[home].append(unit)
                elif len(unit) == 1:
                    for to, command in self._one(unit[0], folder, home, placed):
                        self.new_units.setdefault(to, []).append([command])
                else:
                    self.new_units[home].append([inner for command in unit
                                                 for to, inner in self._one(command, folder, home, placed, inside=True)])
            if tail.strip():
                self.new_units[home].append([Command(tail.rstrip("\n") + "\n", "", "", "", "")])
        for name, library in self.layout.libraries.items():
            if name not in placed and self.listed.get(name):
                call = self._library_call(name)
                command = Command("", "sluice_library", call.body(""), "", "")
                self.new_units.setdefault(library.home, []).insert(0, [command])
        self._link_tests()

    def _one(self, command, folder, home, placed, inside=False):
        """(new folder, new command) of each command that takes this one's place."""
        if command.name == "sluice_library":
            old = Call(command).name
            name = self.layout.new_target(old)
            if name not in self.layout.libraries or name in placed:
                return []
            placed.add(name)
            to = home if inside else self.layout.libraries[name].home
            call = self._library_call(name)
            if not call.lists["SOURCES"]:
                return []
            # What was said of one of several is not true of what they are together.
            before = command.before if len(self.layout.libraries[name].was) == 1 else "\n" * command.before.startswith("\n")
            return [(to, Command(before, command.name, call.body(command.indent), command.indent, command.after))]
        if command.name in KEYWORDS:
            return self._program(command, folder, home, inside)
        to = home
        body = self._words(command, folder, home)
        first = re.match(r"\s*(\S+)", body)
        target = first and first[1].removeprefix("sluice_")
        if not inside and target in self.layout.libraries and command.name.startswith(("target_", "set_target")):
            to = self.layout.libraries[target].home
        return [(to, Command(command.before, command.name, body, command.indent, command.after))]

    def _words(self, command, folder, home):
        """The body of a command with its files, folders and targets under their new names."""
        def word(match):
            text = match[0]
            bare = text.strip('"')
            old = posixpath.normpath(posixpath.join(folder, bare))
            if command.name == "add_subdirectory":
                new = self._home_folder(old) if posixpath.join(old, "CMakeLists.txt") in self.moves else None
                return relative(new, home) if new else text
            if old in self.moves and "/" not in text[:1] and re.search(r"\.\w+$", bare):
                return text.replace(bare, relative(self.moves[old], home))
            source = re.match(r"\$\{(PROJECT_SOURCE_DIR|CMAKE_CURRENT_SOURCE_DIR)\}/(.+)$", bare)
            if source:
                base = "" if source[1] == "PROJECT_SOURCE_DIR" else folder
                old = posixpath.normpath(posixpath.join(base, source[2]))
                if old in self.moves:
                    new = self.moves[old]
                    new = new if source[1] == "PROJECT_SOURCE_DIR" else relative(new, home)
                    return text.replace(source[2], new)
            return re.sub(r"\bsluice(::|_)(\w+)", lambda m: f"sluice{m[1]}{self.layout.new_target(m[2])}"
                          if m[2] in self.old_calls else m[0], text)
        return re.sub(r'"[^"]*"|[^\s()"#]+', word, command.body)

    def _program(self, command, folder, home, inside):
        call = Call(command)
        call.lists["LINK"] = list(dict.fromkeys(
            "sluice::" + self.layout.new_target(word.removeprefix("sluice::")) if word.startswith("sluice::") else word
            for word in call.lists.get("LINK", [])))
        parts = {}
        for word in call.lists["SOURCES"]:
            old = posixpath.normpath(posixpath.join(folder, word))
            new = self.moves.get(old)
            if new and self.owner.get(new):
                continue  # A library has it now.
            name = self.layout.new_target(call.name)
            for under, to in self.splits.get(call.name, []):
                if new and (new + "/").startswith(under + "/"):
                    name = to
                    break
            parts.setdefault(name, []).append(new or word)
        result = []
        for name, paths in parts.items():
            part = Call(Command("", command.name, name, "", ""))
            part.flags, part.lists = list(call.flags), {key: list(value) for key, value in call.lists.items()}
            to = home if inside else self.layout.homes.get(name, home)
            part.paths = paths
            part.lists["SOURCES"] = [relative(path, to) if path in self.moves.values() else path for path in paths]
            part.lists["DEFINES"] = [self._define(word, folder) for word in call.lists.get("DEFINES", [])]
            made = Command(command.before if name == next(iter(parts)) else "", command.name, part.body(command.indent),
                           command.indent, command.after)
            made.call = part
            made.whole = name == self.layout.new_target(call.name)
            result.append((to, made))
        return result

    def _define(self, word, folder):
        match = re.match(r'(\w+="?\$\{PROJECT_SOURCE_DIR\}/)([^"]+)("?)$', word)
        if match and match[2] in self.moves:
            return match[1] + self.moves[match[2]] + match[3]
        return word

    def _link_tests(self):
        """Adds what tests and programs include to what they link; merges parts of one test from several files."""
        seen = {}
        for folder, parts in self.new_units.items():
            for unit in parts:
                for command in list(unit):
                    call = getattr(command, "call", None)
                    if call is None or command.indent:
                        if call is not None:
                            self._finish(command, call, folder)
                        continue
                    key = (folder, call.name)
                    if not command.whole:
                        call.lists["LINK"] = [word for word in call.lists["LINK"] if not word.startswith("sluice::")]
                    if key in seen and call.kind == "sluice_test" and not (command.whole and seen[key].whole):
                        into, part = (call, seen[key].call) if command.whole else (seen[key].call, call)
                        into.paths = into.paths + part.paths
                        into.lists["SOURCES"] = into.lists["SOURCES"] + part.lists["SOURCES"]
                        seen[key].call, seen[key].whole = into, seen[key].whole or command.whole
                        self._finish(seen[key], into, folder)
                        unit.remove(command)
                        continue
                    seen.setdefault(key, command)
                    self._finish(command, call, folder)
            self.new_units[folder] = [unit for unit in parts if unit]

    def _finish(self, command, call, folder):
        includes = self._uses(self._with_own_headers(call.paths))
        linked = {word.removeprefix("sluice::") for word in call.lists["LINK"] if word.startswith("sluice::")}
        reached = set(linked)
        while True:
            more = {inner for name in reached for inner in self.link_sets.get(name, ())} - reached
            if not more:
                break
            reached |= more
        if call.kind == "sluice_test":
            call.lists["LINK"] += sorted("sluice::" + name for name in includes if name not in reached)
        else:
            call.lists["LINK"] += sorted("sluice::" + name for name in includes if name not in linked)
        command.body = call.body(command.indent)

    def texts(self):
        """{folder: text of its CMakeLists.txt}."""
        listed = set()
        homeless = []
        for folder, home, command in self.subdirectories:
            old = posixpath.normpath(posixpath.join(folder, command.words()[0]))
            known = posixpath.join(old, "CMakeLists.txt") in self.moves
            new = self._home_folder(old) if known else posixpath.join(home, command.words()[0])
            if new == home or new in listed:
                command.name = ""
                command.before = ""
            elif home and not new.startswith(home + "/"):
                command.name = ""
                homeless.append(new)
            else:
                command.body = relative(new, home)
                listed.add(new)
        for parts in self.new_units.values():
            for unit in parts:
                for command in unit:
                    if command.name == "add_subdirectory" and command.indent:
                        listed.add(posixpath.normpath(posixpath.join(
                            next(home for home, units in self.new_units.items() if unit in units), command.words()[0])))
        missing = [home for home in self.new_units if home and home not in listed and self.new_units[home]]
        for new in sorted(missing):
            above = posixpath.dirname(new)
            while above and above not in self.new_units and above not in missing:
                above = posixpath.dirname(above)
            parts = self.new_units[above]
            runs = [at for at, unit in enumerate(parts) if unit[0].name == "add_subdirectory"]
            last = next((at for at in runs if at + 1 not in runs), len(parts) - 1)
            parts.insert(last + 1, [Command("", "add_subdirectory", relative(new, above), "", "")])
        return {home: "".join(command.text() if command.name else command.before for unit in parts for command in unit)
                for home, parts in self.new_units.items() if parts}
