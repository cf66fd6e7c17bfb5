# SPDX-License-Identifier: Apache-2.0
"""Finds the functions and classes of a C++ source by its braces, without a compiler or macros. Good enough to measure sizes."""
import bisect
import dataclasses
import re


@dataclasses.dataclass
class Function:
    name: str    # As written, with the names before ::.
    owner: str   # The names before the last ::. Empty for a member that is defined inside its class.
    line: int
    lines: int


@dataclasses.dataclass
class Class:
    name: str      # With the names of the enclosing classes.
    line: int
    lines: int
    nested: bool   # Inside the body of another class.
    fields: int = 0
    methods: int = 0  # Defined inside the body.


@dataclasses.dataclass
class Outline:
    functions: list
    classes: list


TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^\s()\\]*)\(.*?\)(?P=tag)"|"(?:[^"\\\n]|\\.)*"|(?<![0-9A-Za-z])\'(?:[^\'\\\n]|\\.)+\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M)
SPACE = re.compile(r"[^\n]")
ACCESS = re.compile(r"^\s*(?:(?:public|protected|private)\s*:\s*)+")
PARENTHESES = r"\([^()]*(?:\([^()]*\)[^()]*)*\)"
ATTRIBUTE = re.compile(r"\b(?:ABSL_\w+|SLUICE_\w+|HWY_\w+|alignas|__attribute__|__launch_bounds__|noexcept|decltype|requires)\s*"
                       + PARENTHESES + r"|\[\[[^\]]*\]\]")
CLASS = re.compile(r"\b(?:class|struct|union)\s+(?:ABSL_\w+\s+|SLUICE_\w+\s+)*([A-Za-z_][\w:]*)(?:<[^{};]*>)?\s*"
                   r"(?:final\s*)?(?::(?!:).*)?$", re.S)
NAME = re.compile(r"((?:[A-Za-z_]\w*(?:<[^<>()]*>)?::)*(?:operator\s*(?:\(\)|\[\]|[^\s(\w]+|[\w:]+[\s*&]*)|~?[A-Za-z_]\w*))\s*\(")
OPERATOR = re.compile(r"\boperator\s*(?:[<>=!+*/%&|^~-]+)")
NO_FIELD = re.compile(r"^(?:using|typedef|friend|static_assert|template|enum|class|struct|union|static|extern|constexpr|operator)\b")


def blank(text):
    """Blanks comments, strings and directives, and keeps everything else in place."""
    text = TOKENS.sub(lambda match: SPACE.sub(" ", match[0]) if match[0][0] == "/" else '"' + SPACE.sub(" ", match[0][1:-1]) + '"', text)
    return DIRECTIVE.sub(lambda match: SPACE.sub(" ", match[0]), text)


def strip_pairs(text, opening, closing):
    """Removes the text between pairs, and the pairs."""
    out, depth = [], 0
    for sign in text:
        if sign == opening:
            depth += 1
        elif sign == closing and depth:
            depth -= 1
        elif not depth:
            out.append(sign)
    return "".join(out)


def strip_templates(text):
    """Removes `<...>` of templates, but not operators, shifts and arrows."""
    text = OPERATOR.sub("operator_", text).replace("->", "  ").replace("<=", "  ").replace(">=", "  ").replace("<<", "  ")
    return strip_pairs(text, "<", ">")


def fields_in(statement):
    """Returns the number of data members that this statement of a class's body declares."""
    text = ACCESS.sub("", ATTRIBUTE.sub(" ", statement)).strip()
    text = re.sub(r"^(?:mutable|volatile|inline)\s+", "", text)
    if not text or NO_FIELD.match(text):
        return 0
    text = strip_templates(text)
    text = re.sub(r"\(\s*\*\s*\w+\s*\)\s*\([^()]*\)", " pointer ", text)
    if "(" in text.split("=")[0]:
        return 0
    text = strip_pairs(strip_pairs(text, "(", ")"), "{", "}")
    return text.count(",") + 1 if len(text.split("=")[0].split()) > 1 or "{" in statement else 0


class Reader:
    def __init__(self, text):
        self.text = blank(text)
        self.lines = [match.start() for match in re.finditer("\n", self.text)]
        self.functions, self.classes = [], []
        self.closing = self._pairs()

    def _pairs(self):
        closing, open_at = {}, []
        for match in re.finditer("[{}]", self.text):
            if match[0] == "{":
                open_at.append(match.start())
            elif open_at:
                closing[open_at.pop()] = match.start()
        return closing

    def line(self, at):
        return bisect.bisect_left(self.lines, at) + 1

    def lines_of(self, start, end):
        return self.line(end) - self.line(start) + 1

    def scope(self, at, end, inside=None):
        """Reads statements from `at` to `end`, of a namespace or of the class `inside`."""
        start = at
        for match in iter(lambda: self._next(at, end), None):
            at = match
            if self.text[at] == ";":
                if inside is not None:
                    inside.fields += fields_in(self.text[start:at])
                at = start = at + 1
                continue
            close = self.closing.get(at, end)
            if self._block(start, at, close, inside):
                start = at = close + 1
            else:
                at = close + 1  # An initializer: the statement continues.

    def _next(self, at, end):
        match = re.compile("[;{]").search(self.text, at, end)
        return match and match.start()

    def _block(self, start, at, close, inside):
        """Returns whether the block from `at` to `close` ends the statement that begins at `start`."""
        head = self.text[start:at]
        start += len(head) - len(head.lstrip())
        access = ACCESS.match(head)
        if access:
            start += len(access[0].lstrip())
            head = head[access.end():]
        plain = ATTRIBUTE.sub(" ", head).strip()
        if re.match(r"(?:inline\s+)?namespace\b", plain) or plain.startswith("extern"):
            self.scope(at + 1, close, inside)
            return True
        bare = strip_templates(plain)
        if re.match(r"(?:typedef\s+)?enum\b", plain):
            return False
        named = CLASS.search(bare)
        if named and "(" not in bare[:named.start()] and "=" not in bare:
            self._class(named[1], start, at, close, inside)
            return False  # Up to the semicolon.
        if self._is_function(bare):
            self._function(plain, start, close, inside)
            return True
        return False

    def _is_function(self, head):
        opened = head.find("(")
        # Inside the arguments of a macro: a list or a lambda.
        if opened < 0 or head.count("(") != head.count(")"):
            return False
        if "=" in head[:opened]:
            return False
        # `: member_{1}` of a constructor: its body follows.
        if re.search(r"[\w>]\s*$", head) and re.search(r"\)\s*:(?!:)", head):
            return False
        return True

    def _class(self, name, start, at, close, inside):
        full = f"{inside.name}::{name}" if inside is not None else name
        found = Class(full, self.line(start), self.lines_of(start, close), inside is not None)
        self.classes.append(found)
        self.scope(at + 1, close, found)

    def _function(self, head, start, close, inside):
        name = NAME.search(re.sub(r"^template\s*<.*?>\s*(?=[\w:])", "", head, flags=re.S))
        full = re.sub(r"<[^<>]*>", "", name[1]) if name else head.split("(")[0].strip()
        if inside is not None:
            inside.methods += 1
        owner = full.rpartition("::")[0] if inside is None else ""
        self.functions.append(Function(full, owner, self.line(start), self.lines_of(start, close)))


def outline(text):
    reader = Reader(text)
    reader.scope(0, len(reader.text))
    return Outline(reader.functions, reader.classes)
