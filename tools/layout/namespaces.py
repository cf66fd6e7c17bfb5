"""Gives each folder its namespace, and says the namespace of names that come from others.

It knows C++ as the project writes it: types, functions and enumerators begin with a capital letter or a k, variables and
members do not, so that what could be meant by a word is a name of a namespace or of a class. Which, scopes say.
"""
import collections
import re

from checks import INCLUDE

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(?P<raw>\w*)\((?:.|\n)*?\)(?P=raw)"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\''
                   r'|^[ \t]*#(?:[^\n\\]|\\\n|\\.)*|[A-Za-z_]\w*|\d[\w.\']*|::|->|[^\s]', re.M | re.S)
WORD = re.compile(r"^(?:[A-Z]\w*|k[A-Z0-9]\w*)$")
TESTS = {"TEST": 2, "TEST_F": 2, "TEST_P": 2, "TYPED_TEST": 2, "TYPED_TEST_SUITE": 1, "INSTANTIATE_TEST_SUITE_P": 2, "MATCHER": 1,
         "MATCHER_P": 1, "MATCHER_P2": 1, "HWY_EXPORT": 1}
KEYWORDS = {"if", "for", "while", "switch", "catch", "return", "do", "else", "try", "static_assert"}
IS_SOURCE = re.compile(r"\.(h|cc|cu|cuh|in)$")


def ahead(matches, at):
    """What stands before a word, as far as it says whose it is: `a::b::`, `.` or `->`."""
    back = at - 1
    if back >= 0 and matches[back][0] == ".":
        return "" if back >= 2 and matches[back - 1][0] == "." else "."
    if back >= 0 and matches[back][0] == "->":
        # A trailing return type has it too.
        return "" if back >= 1 and matches[back - 1][0] in (")", "const", "mutable", "noexcept") and arrow_is_type(matches, back) else "->"
    found = ""
    while back >= 0 and matches[back][0] == "::":
        found = "::" + found
        back -= 1
        if back >= 0 and re.match(r"^[A-Za-z_]\w*$", matches[back][0]):
            found = matches[back][0] + found
            back -= 1
        else:
            break
    return found


def arrow_is_type(matches, arrow):
    """Whether `) -> X` is of a lambda or a declaration: what opened the parenthesis has a `]` or a name of a declaration before it."""
    depth, at = 0, arrow - 1
    while at >= 0 and matches[at][0] != ")":
        at -= 1
    while at >= 0:
        depth += (matches[at][0] == ")") - (matches[at][0] == "(")
        if depth == 0:
            return at > 0 and matches[at - 1][0] == "]"
        at -= 1
    return False


class Scope:
    def __init__(self, kind, name="", bases=(), classes=()):
        self.kind, self.name, self.bases, self.classes = kind, name, list(bases), list(classes)


class Unit:
    """One file: its tokens, each with the classes around it, and what it declares."""

    def __init__(self, text):
        self.text = text
        self.tokens = []          # (start, end, word, classes, kind of scope)
        self.declares = collections.defaultdict(set)  # {namespace: names}
        self.unnamed = set()      # What its unnamed namespaces declare.
        self.local = set()        # What means something of this file's own wherever it is said.
        self.members = collections.defaultdict(set)
        self.bases = collections.defaultdict(set)
        self.forwards = []        # (start, end, name): `struct X;` in a namespace.
        self._scan()

    def _scan(self):
        stack, statement, parens, skip, expression = [Scope("file")], [], 0, None, []
        matches = [match for match in TOKEN.finditer(self.text)
                   if not match[0].lstrip().startswith(("//", "/*", '"', "'", 'R"')) and not match[0].lstrip().startswith("#")]
        for at, match in enumerate(matches):
            word = match[0]
            after = matches[at + 1][0] if at + 1 < len(matches) else ""
            scope = stack[-1]
            if word in TESTS and after == "(" and parens == 0:
                skip = [word, TESTS[word], 0, []]
            if skip is not None and word not in TESTS:
                skip[2] += (word == "(") - (word == ")")
                skip[1] -= word == "," and skip[2] == 1
                if WORD.match(word):
                    skip[3].append(word)
            if WORD.match(word) and (skip is None or skip[1] <= 0):
                self.tokens.append((match.start(), match.end(), word, self._classes(stack, statement), scope.kind, ahead(matches, at)))
            elif word == "gpu" and after == "::":
                self.tokens.append((match.start(), match.end(), word, [], scope.kind, ahead(matches, at)))
            if skip is not None and skip[2] == 0 and word == ")":
                parens -= 1
                statement.append((word, match))
                if skip[0] in ("TEST_F", "TEST_P", "TYPED_TEST"):
                    statement = [("TEST", match)] + [(name, match) for name in skip[3][:1]]
                elif skip[0] in ("MATCHER", "MATCHER_P", "MATCHER_P2"):
                    self.local.update(skip[3][:1])
                skip = None
                continue
            if scope.kind == "enum" and scope.open and WORD.match(word) and (not statement or statement[-1][0] == ","):
                self._declare(stack[:-1], word)  # Its enumerators are names of where it is.
            if word == "(":
                parens += 1
            elif word == ")":
                parens -= 1
            if word == "{":
                inner = self._opened(stack, statement, parens)
                inner.parens = parens
                inner.statement = statement
                stack.append(inner)
                if inner.kind != "expression":
                    parens = 0
                statement = []
            elif word == "}":
                closed = stack.pop() if len(stack) > 1 else scope
                parens = getattr(closed, "parens", 0)
                if closed.kind == "expression" or after in (",", ")", "{") or (closed.kind != "class" and after == ";"):
                    statement = list(getattr(closed, "statement", [])) + [("{}", match)]
                elif closed.kind in ("class", "enum"):
                    statement = []
                else:
                    statement = []
            elif word == ";" and parens == 0:
                self._declared(stack[-1], stack, statement, ended=match)
                statement = []
            elif word == ":" and parens == 0 and len(statement) == 1 and statement[0][0] in ("public", "private", "protected"):
                statement = []
            else:
                statement.append((word, match))

    @staticmethod
    def _words(statement):
        words = [word for word, _ in statement]
        while words and words[0] == "template":  # Without its parameters.
            depth, at = 0, 1
            for at in range(1, len(words)):
                depth += (words[at] == "<") - (words[at] == ">")
                if depth == 0:
                    break
            words = words[at + 1:]
        while words and words[0] == "[":  # Attributes.
            depth = 0
            for at, word in enumerate(words):
                depth += (word == "[") - (word == "]")
                if depth == 0:
                    break
            words = words[at + 1:]
        return words

    def _template(self, statement):
        words = [word for word, _ in statement]
        for before, word in zip(words, words[1:]):
            if WORD.match(word) and "template" in words[:1] and re.match(r"^(typename|class|bool|int|auto|size_t|u?int\d+_t)$", before):
                self.local.add(word)

    def _classes(self, stack, statement):
        classes = [scope.name for scope in stack if scope.kind == "class"] + [name for scope in stack for name in scope.classes]
        # A definition that is being read: `X Class::Method(` is in Class from its name on.
        words = [word for word, _ in statement]
        for at in range(1, len(words)):
            if words[at] == "::" and WORD.match(words[at - 1]) and "(" in words[at:]:
                classes.append(words[at - 1])
        return classes

    def _opened(self, stack, statement, parens):
        words = self._words(statement)
        self._template(statement)
        outer = stack[-1]
        if parens > 0 and not (words and words[0] in KEYWORDS):
            return Scope("expression")
        if words[:1] == ["inline"] and words[1:2] == ["namespace"]:
            words = words[1:]
        if words[:1] == ["namespace"]:
            return Scope("namespace", "".join(words[1:]))
        if words[:1] == ["extern"]:
            return Scope("namespace", "extern")
        first = next((word for word in words if word not in ("static", "inline", "constexpr", "const", "typedef", "alignas", "friend")), "")
        if first in ("class", "struct", "union"):
            at = words.index(first) + 1
            if "(" not in words[at:] or words[at] in ("alignas", "SLUICE_CAPABILITY", "ABSL_LOCKABLE") or ":" in words:
                names = [word for word in words[at:words.index(":") if ":" in words else None]
                         if re.match(r"^[A-Za-z_]\w*$", word) and word != "final"]
                name = names[-1] if names else ""
                bases = [word for word in words[words.index(":"):] if WORD.match(word)] if ":" in words else []
                self._declare(stack, name)
                self.bases[name].update(bases)
                self.members[name]  # It is a class, with or without members.
                return Scope("class", name)
        if first == "enum":
            names = [word for word in words[words.index("enum") + 1:words.index(":") if ":" in words else None]
                     if word not in ("class", "struct") and re.match(r"^[A-Za-z_]\w*$", word)]
            self._declare(stack, names[-1] if names else "")
            scope = Scope("enum", names[-1] if names else "")
            scope.open = not {"class", "struct"} & set(words[:words.index("enum") + 2])
            return scope
        if words[:1] == ["TEST"]:
            return Scope("function", classes=words[1:2])
        if outer.kind in ("file", "namespace", "class"):
            if "(" in words and "=" not in words[:words.index("(")] or "operator" in words:
                at = words.index("(") if "(" in words else len(words)
                name = words[at - 1] if at else ""
                classes = []
                back = at - 2
                while back > 0 and words[back] == "::":
                    back -= 1
                    if words[back] == ">":  # A template's.
                        break
                    classes.insert(0, words[back])
                    back -= 1
                if "operator" in words:
                    where = words.index("operator")
                    classes = [words[where - 2]] if where >= 2 and words[where - 1] == "::" else []
                if not classes:
                    self._declare(stack, name)
                return Scope("function", name, classes=classes)
            self._declared(outer, stack, statement)
            return Scope("expression")
        if words and words[0] in KEYWORDS or not words:
            return Scope("block")
        if first and "(" not in words:
            return Scope("expression")
        return Scope("block")

    def _declare(self, stack, name):
        if not name or not re.match(r"^[A-Za-z_]\w*$", name):
            return
        kinds = [scope.kind for scope in stack]
        if "function" in kinds or "block" in kinds or "expression" in kinds:
            self.local.add(name)
        elif stack[-1].kind == "class":
            self.members[stack[-1].name].add(name)
        elif stack[-1].kind in ("namespace", "file"):
            names = [scope.name for scope in stack if scope.kind == "namespace"]
            if "" in names or any("HWY" in part for part in names):
                self.local.add(name)
                if "" in names and not any("HWY" in part for part in names):
                    self.unnamed.add(name)
            else:
                self.declares["::".join(names)].add(name)

    def _declared(self, scope, stack, statement, ended=None):
        words = self._words(statement)
        self._template(statement)
        if not words or scope.kind == "enum":
            return
        if words[0] in ("class", "struct") and len(words) == 2 and ended is not None:
            spaces = [part.name for part in stack if part.kind == "namespace"]
            if scope.kind == "namespace" and spaces and spaces[0].startswith("sluice"):
                self.forwards.append((statement[0][1].start(), ended.end(), words[1]))
            elif scope.kind == "class":
                self.members[scope.name].add(words[1])
            return
        if words[0] == "friend" or words[0] in KEYWORDS:
            return
        if words[0] == "using":
            if len(words) > 2 and words[2] == "=":
                self._declare(stack, words[1])
            elif words[1:2] != ["namespace"] and scope.kind != "class":
                self.local.add(words[-1])  # `using a::B;`
            elif scope.kind == "class":
                self.members[scope.name].add(words[-1])
            return
        kinds = {part.kind for part in stack}
        if {"function", "block"} & kinds:
            # Constants and types of a function; calls are statements too.
            if {"constexpr", "const", "static"} & set(words[:3]):
                name = next((words[at - 1] for at, word in enumerate(words) if word in ("=", "[", "{}") and at), words[-1])
                if WORD.match(name):
                    self.local.add(name)
            return
        depth = 0
        for at, word in enumerate(words):
            if word == "<":
                depth += 1
            elif word == ">":
                depth -= 1
            if word in ("=", "{}", "[") and depth <= 0:
                self._declare(stack, words[at - 1])
                return
            if word == "(" and depth <= 0:
                if at >= 2 and words[at - 2] == "::":
                    return
                self._declare(stack, words[at - 1])
                return
        self._declare(stack, words[-1])


def new_namespace(layout, path, old):
    """What `old`, a namespace in the file `path`, is called from now on."""
    if old == "sluice::gpu" or old == "sluice::compress::gpu":
        return "sluice::compress::gpu"
    if old != "sluice":
        return old
    name = layout.namespace_of(path) or "sluice"
    return name.removesuffix("::gpu")


class Names:
    """Who declares what, by the namespaces to come."""

    def __init__(self, layout, units, includes):
        self.layout, self.units, self.includes = layout, units, includes
        self.owners = {}
        for path, unit in units.items():
            found = collections.defaultdict(set)
            for namespace, names in unit.declares.items():
                space = new_namespace(layout, path, namespace)
                if space.startswith("sluice"):
                    for name in names:
                        found[name].add(space)
            self.owners[path] = found
        self.members, self.bases = collections.defaultdict(set), collections.defaultdict(set)
        for path, unit in units.items():
            for name, members in unit.members.items():
                self.members[name] |= members
                self.bases[name] |= unit.bases[name]

    def closure(self, path):
        found, todo = set(), [path]
        while todo:
            for include in self.includes.get(todo.pop(), ()):
                if include in self.units and include not in found:
                    found.add(include)
                    todo.append(include)
        return found

    def visible(self, path):
        """{name: namespaces} of all headers that `path` reads."""
        found = collections.defaultdict(set)
        for header in self.closure(path):
            for name, spaces in self.owners[header].items():
                found[name] |= spaces
            for _, _, name in self.units[header].forwards:
                found[name] |= everywhere(self).get(name, set())
        return found

    def local_in(self, path):
        """What headers that `path` reads mean by words of their own, template parameters among them."""
        return set().union(*(self.units[header].local for header in self.closure(path))) if self.closure(path) else set()

    def is_member(self, name, classes):
        todo, seen = list(classes), set()
        while todo:
            part = todo.pop()
            if part in seen:
                continue
            seen.add(part)
            if name in self.members.get(part, ()):
                return True
            todo += self.bases.get(part, ())
        return False


def encloses(outer, inner):
    return inner == outer or inner.startswith(outer + "::")


def shortest(space, inside):
    """How code in the namespace `inside` says `space`."""
    words = space.split("::")
    around = inside.split("::")
    common = 0
    while common < min(len(words), len(around)) and words[common] == around[common]:
        common += 1
    return "::".join(words[common:])


def qualify(path, unit, names, layout, report):
    """The text of `path` with its namespace and with those of others' names."""
    text = unit.text
    visible = names.visible(path)
    spaces = [new_namespace(layout, path, space) for space in unit.declares if space.startswith("sluice")]
    spaces += [new_namespace(layout, path, match[1]) for match in re.finditer(r"^namespace (sluice(?:::gpu|::compress::gpu)?) \{", text, re.M)]
    inside = max(spaces, key=len, default="")
    own = names.owners[path]
    # What lay in sluice::gpu was seen only there.
    if "gpu" not in inside:
        visible = {name: owners - {"sluice::compress::gpu"} or owners for name, owners in visible.items()}
    edits = []
    forwarded = {name for _, _, name in unit.forwards}
    for start, end, word, classes, kind, before in unit.tokens:
        if before in (".", "->"):
            continue
        if kind == "enum":
            continue
        if before.endswith("::"):
            whole = re.match(r"(?:::)?sluice::(gpu::)?$", before)
            if whole and word != "gpu":
                owner = visible.get(word, set()) | own.get(word, set())
                if owner <= {"sluice::compress::gpu"} and word in unit.local:  # As main() says names of its file.
                    owner = {new_namespace(layout, path, "sluice")}
                owner = owner - {"sluice::compress::gpu"} or owner
                if whole[1]:
                    edits.append((start - len("gpu::"), start, "compress::gpu::"))
                elif len(owner) == 1 and "sluice" not in owner:
                    edits.append((start, start, next(iter(owner)).removeprefix("sluice::") + "::"))
                elif len(owner) > 1:
                    report.append(f"{path}: sluice::{word} may be one of {', '.join(sorted(owner))}")
            elif whole and word == "gpu":
                edits.append((start, start, "compress::"))
            continue
        if word == "gpu":
            if not encloses("sluice::compress", inside) and not text[start:].startswith("gpu::compress"):
                edits.append((start, start, "compress::"))
            continue
        if not inside or word in unit.local or word in own:
            continue
        owners = visible.get(word)
        if not owners:
            others = everywhere(names).get(word, set()) - {"sluice::compress::gpu"}
            if others and word not in forwarded and not names.is_member(word, classes) and word not in names.local_in(path):
                report.append(f"{path}:{text.count(chr(10), 0, start) + 1}: {word} looks like one of {', '.join(sorted(others))}")
            continue
        if any(encloses(space, inside) for space in owners):
            continue
        if names.is_member(word, classes):
            continue
        if len(owners) > 1:
            report.append(f"{path}:{text.count(chr(10), 0, start) + 1}: {word} may be one of {', '.join(sorted(owners))}")
            continue
        edits.append((start, start, shortest(next(iter(owners)), inside) + "::"))
    forwards = collections.defaultdict(list)
    for start, end, name in unit.forwards:
        owner = {space for other in names.units.values() for space in ()}
        owner = everywhere(names).get(name, set())
        if len(owner) == 1 and next(iter(owner)) != inside and name not in own:
            forwards[next(iter(owner))].append(text[start:end])
            edits = [edit for edit in edits if not start <= edit[0] < end]
            edits.append((start, end + (text[end:end + 1] == "\n"), ""))
            # Its uses are in no header that is read: say its namespace.
            edits += [(at, at, shortest(next(iter(owner)), inside) + "::") for at, stop, word, classes, kind, before in unit.tokens
                      if word == name and not start <= at < end and not before
                      and word not in visible]
    for start, end, new in sorted(set(edits), reverse=True):
        text = text[:start] + new + text[end:]
    text = re.sub(r"^namespace (sluice|sluice::gpu) \{", lambda m: f"namespace {new_namespace(layout, path, m[1])} {{", text, flags=re.M)
    text = re.sub(r"^\}(\s+)// namespace (sluice|sluice::gpu)$", lambda m: f"}}{m[1]}// namespace {new_namespace(layout, path, m[2])}",
                  text, flags=re.M)
    text = text.replace("using namespace sluice::gpu;", "using namespace sluice::compress::gpu;")
    if path == "server/shard/rule_kernels.cc":  # Names of Highway's namespaces are in no list.
        text = text.replace("namespace hn = hwy::HWY_NAMESPACE;\n",
                            "namespace hn = hwy::HWY_NAMESPACE;\nusing compress::HWY_NAMESPACE::ForEachVector;\n", 1)
    if forwards:
        first = re.search(r"^namespace sluice", text, re.M).start()
        blocks = "".join(f"namespace {space} {{\n" + "\n".join(lines) + f"\n}}  // namespace {space}\n\n" for space, lines in sorted(forwards.items()))
        text = text[:first] + blocks + text[first:]
    return text


def everywhere(names):
    if not hasattr(names, "all"):
        names.all = collections.defaultdict(set)
        for path, owners in names.owners.items():
            if path.endswith((".h", ".cuh")) and not path.startswith("tests/"):
                for name, spaces in owners.items():
                    names.all[name] |= spaces
    return names.all


def hidden(names, layout):
    """Functions of sluice itself that a namespace in it has too: an inner one hides the outer one."""
    for path, unit in sorted(names.units.items()):
        outer = {name for header in names.closure(path) for name, spaces in names.owners[header].items() if "sluice" in spaces}
        inner = {name for name, spaces in names.owners[path].items() if any(space != "sluice" for space in spaces)}
        for name in sorted((inner | unit.local) & outer):
            if not path.startswith("base/") and re.search(rf"\b{name}\(", unit.text):
                yield f"{path}: {name} hides sluice::{name}"


def apply(root, layout, paths):
    texts = {path: (root / path).read_text() for path in paths if IS_SOURCE.search(path) and not path.startswith("tools/")}
    if any(re.search(r"^namespace sluice::server \{", text, re.M) for text in texts.values()):
        todo = {path for path, text in texts.items() if re.search(r"^namespace sluice(::gpu)? \{", text, re.M)
                and new_namespace(layout, path, "sluice") != "sluice"}
    else:
        todo = set(texts)
    units = {path: Unit(text) for path, text in texts.items()}
    includes = {path: INCLUDE.findall(text) for path, text in texts.items()}
    names = Names(layout, units, includes)
    report, written = [], []
    for path in sorted(todo):
        text = qualify(path, units[path], names, layout, report)
        if text != texts[path]:
            (root / path).write_text(text)
            written.append(path)
    for path in paths:
        if path.endswith(".md") and path not in ("CHANGELOG.md",):
            text = (root / path).read_text()
            new = re.sub(r"\bsluice::(?!gpu)([A-Z]\w*)", lambda m: "sluice::" + "".join(
                space.removeprefix("sluice").removeprefix("::") + ("::" if space != "sluice" else "")
                for space in everywhere(names).get(m[1], ()) if len(everywhere(names)[m[1]]) == 1) + m[1], text)
            if new != text:
                (root / path).write_text(new)
    print(f"{len(written)} files have namespaces of their own")
    for line in report + list(hidden(names, layout)):
        print(f"look at {line}")
    return written
