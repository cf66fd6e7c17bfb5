# SPDX-License-Identifier: Apache-2.0
"""The mutants of a C++ source: copies that differ in one condition, constant or statement. Pure."""
import dataclasses
import re

# clang-format sets spaces around operators, and none around the brackets of templates.
_OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+"}
_OPERATOR = re.compile(r"(?<= )(?:" + "|".join(re.escape(text) for text in sorted(_OPERATORS, key=len, reverse=True)) + r")(?= |$)")
_EXTREME = re.compile(r"\bstd::(min|max)\(")
_BOOL = re.compile(r"\b(true|false)\b")
_NUMBER = re.compile(r"(?<![\w.{])(\d+)(?![\w.'])")
_IF = re.compile(r"^\s*(?:\} else )?if \(([^;]*)\) (?:\{|return.*;|continue;|break;)$")
_PLACE = r"[A-Za-z]\w*(?:(?:\.|->)\w+|\[[^\]]*\])*"
_STATEMENT = re.compile(rf"^\s+(?:{_PLACE}(?:\(.*\)| [-+|]?= .*)|(?:\+\+|--){_PLACE});$")
_KEYWORDS = re.compile(r"^\s+(?:return|using|delete|throw|co_\w+|goto|case|static_assert|Check)\b")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)\'')


@dataclasses.dataclass(frozen=True)
class Mutant:
    """`before` and `after` are the whole line, number `line` (from 1) of the file `path`."""

    path: str
    line: int
    before: str
    after: str


def _without_text(line):
    """The line with its comment and the characters of its strings as blanks, in their places."""
    blank = _STRING.sub(lambda match: " " * len(match[0]), line)
    start = blank.find("//")
    return blank if start < 0 else blank[:start] + " " * (len(line) - start)


def _of_line(line, is_whole):
    code = _without_text(line)
    if not code.strip() or code.lstrip().startswith(("#", "template", "constexpr", "namespace", "using", "static_assert")):
        return
    for match in _OPERATOR.finditer(code):
        yield line[: match.start()] + _OPERATORS[match[0]] + line[match.end() :]
    for match in _EXTREME.finditer(code):
        yield line[: match.start(1)] + ("max" if match[1] == "min" else "min") + line[match.end(1) :]
    for match in _BOOL.finditer(code):
        yield line[: match.start()] + ("false" if match[0] == "true" else "true") + line[match.end() :]
    for match in _NUMBER.finditer(code):
        yield line[: match.start()] + str(int(match[0]) + 1) + line[match.end() :]
    if is_whole and (match := _IF.match(code)):
        yield line[: match.start(1)] + "!(" + line[match.start(1) : match.end(1)] + ")" + line[match.end(1) :]
    if is_whole and _STATEMENT.match(code) and not _KEYWORDS.match(code):
        yield code[: len(code) - len(code.lstrip())] + ";"


def mutants(path, text):
    """Yields all mutants of a file, in the order of its lines."""
    before = ";"  # The last line of code.
    for number, line in enumerate(text.splitlines(), 1):
        code = _without_text(line).rstrip()
        for after in _of_line(line, is_whole=before.endswith((";", "{", "}", ":"))):
            yield Mutant(path, number, line, after)
        before = code or before
