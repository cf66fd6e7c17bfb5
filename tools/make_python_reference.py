#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference of the Python package from its docstrings. It reads the sources and does not import the package.

usage: make_python_reference.py ROOT     prints the page; exits with 1 and names each missing or wrong part of a docstring

Public are the names in `__all__`, the public classes of modules without `__all__`, and their public methods, also those of base classes in
the package. A docstring explains all arguments and fields, the result, and the errors that the function itself raises.
tools/docs_hook.py adds the page to the site.
"""
import ast
import dataclasses
import inspect
import pathlib
import re
import sys
import textwrap

PACKAGE = "python/sluice"
MODULES = ("", "compress", "lightning", "transformers")  # Parts of the page. The first is the package itself.
CALLBACKS = ("lightning", "transformers")  # Only frameworks call the methods of their classes.
MADE_BY_FUNCTIONS = ("Session", "LocalSession", "Follower")  # A script does not call their constructors.
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises):$")
ENTRY = re.compile(r"^(\*{0,2}[A-Za-z_]\w*(?:, \*{0,2}[A-Za-z_]\w*)*): ?(.*)$", re.S)
INTRODUCTION = """# Python reference

This page is made from the docstrings of the package `sluice`. [Python in five minutes](python.md) introduces it.
"""


@dataclasses.dataclass
class Docstring:
    """A docstring in its parts: the text, and for each section its entries."""

    text: str
    sections: dict

    def names(self, *sections):
        """Names that the entries of the sections explain."""
        return [name for section in sections for names, _ in self.sections.get(section, []) for name in names.split(", ")]


def parse_docstring(text):
    text = inspect.cleandoc(text or "")
    blocks, here = {"": []}, ""
    for line in text.split("\n"):
        section = SECTION.match(line)
        if section:
            here = section[1]
            blocks[here] = []
        elif here and line and not line.startswith(" "):
            here = ""  # Text below a section.
            blocks[here].append(line)
        else:
            blocks[here].append(line)
    sections = {}
    for name, lines in blocks.items():
        if not name:
            continue
        entries = []
        for line in textwrap.dedent("\n".join(lines)).strip().split("\n"):
            if line.startswith(" ") and entries:
                entries[-1] += " " + line.strip()
            elif line:
                entries.append(line)
        if name == "Returns":
            sections[name] = [("", " ".join(entries))]
        else:
            found = [ENTRY.match(entry) for entry in entries]
            sections[name] = [(entry[1], entry[2]) if entry else ("?", text) for entry, text in zip(found, entries)]
    return Docstring("\n".join(blocks[""]).strip(), sections)


class Package:
    """The parsed sources of a package, by the names of their modules; the package itself is the module ''."""

    def __init__(self, folder):
        self.trees = {file.stem.replace("__init__", ""): ast.parse(file.read_text()) for file in sorted(folder.glob("*.py"))}

    def exported(self, module):
        for node in self.trees[module].body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
                return [element.value for element in node.value.elts]
        return [node.name for node in self.trees[module].body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]

    def find(self, module, name):
        """Returns the module and the definition of a name, which a module defines or imports; None if it is neither."""
        for node in ast.walk(self.trees[module]):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name and node in self.trees[module].body:
                return module, node
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                for alias in node.names:
                    if (alias.asname or alias.name) == name and node.module in self.trees:
                        return self.find(node.module, alias.name)
        return None

    def bases(self, module, node):
        """Yields the class and its base classes in this package, with their modules, except public ones, which have entries of their own."""
        yield module, node
        for base in node.bases:
            found = self.find(module, base.id) if isinstance(base, ast.Name) else None
            if found and isinstance(found[1], ast.ClassDef) and base.id not in self.exported(""):
                yield from self.bases(*found)

    def methods(self, module, node):
        """Returns {name: function} of the public methods of a class and its base classes, in order."""
        found = {}
        for _, owner in self.bases(module, node):
            for part in owner.body:
                if isinstance(part, ast.FunctionDef) and not part.name.startswith("_") and not is_setter(part):
                    found.setdefault(part.name, part)
        return found

    def constructor(self, module, node):
        for _, owner in self.bases(module, node):
            for part in owner.body:
                if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                    return part
        return None


def decorators(node):
    return [ast.unparse(decorator) for decorator in node.decorator_list]


def is_setter(function):
    return any(name.endswith(".setter") for name in decorators(function))


def is_property(function):
    return "property" in decorators(function)


def parameters(function):
    """Returns the names of a function's parameters as a docstring has them. A name with an underscore in front is private."""
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [argument.arg for argument in arguments.kwonlyargs]
    names += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return [name for name in names if name not in ("self", "cls") and not name.lstrip("*").startswith("_")]


def fields(node):
    if not any(name.startswith("dataclasses.dataclass") for name in decorators(node)):
        return []
    return [part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and not part.target.id.startswith("_")]


def raises(function):
    """Whether the function itself makes an error. It may also pass on those of others."""
    return any(isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) for node in ast.walk(function))


def faults_of_function(where, function, doc):
    if not doc.text:
        yield f"{where} has no docstring"
        return
    yield from faults_of_entries(where, doc)
    yield from faults_of_names(where, parameters(function), doc.names("Args"), "argument")
    returns = ast.unparse(function.returns) if function.returns else "None"
    if returns not in ("None", "NoReturn") and not is_property(function) and "Returns" not in doc.sections and not re.match("Returns|Whether|Makes", doc.text):
        yield f"{where} does not explain its result: the docstring begins with `Returns`, or has a section `Returns:`"
    if raises(function) and "Raises" not in doc.sections:
        yield f"{where} raises an error, and its docstring has no section `Raises:`"


def faults_of_names(where, wanted, found, kind):
    for name in wanted:
        if name not in found:
            yield f"{where} does not explain the {kind} `{name}`"
    for name in found:
        if name not in wanted:
            yield f"{where} explains the {kind} `{name}`, which it does not have"


def faults_of_entries(where, doc):
    for section, entries in doc.sections.items():
        yield from (f"{where}, {section}: `{text}` is not `name: text`" for name, text in entries if name == "?")


def faults_of_class(where, package, module, node, doc):
    if not doc.text:
        yield f"{where} has no docstring"
        return
    yield from faults_of_entries(where, doc)
    methods = package.methods(module, node)
    attributes = doc.names("Attributes")
    yield from faults_of_names(where, fields(node), [name for name in attributes if name in fields(node)], "field")
    constructor = package.constructor(module, node)
    if constructor and node.name not in MADE_BY_FUNCTIONS:
        yield from faults_of_names(where, parameters(constructor), doc.names("Args"), "argument")
        if raises(constructor) and "Raises" not in doc.sections:
            yield f"{where}: the constructor raises an error, and the docstring of the class has no section `Raises:`"
    for name, function in methods.items():
        if name not in attributes and module not in CALLBACKS:
            yield from faults_of_function(f"{where}.{name}", function, parse_docstring(ast.get_docstring(function)))


class Page:
    """The page and its faults."""

    def __init__(self, package):
        self._package = package
        self._anchors = {}  # By the full name, such as sluice.Session.join.
        self.faults = []
        self._parts = [INTRODUCTION]
        self._list_anchors()
        for module in MODULES:
            self._add_module(module)

    @property
    def text(self):
        return "\n".join(self._parts)

    def _exported(self, module):
        """Yields (name, module, definition) of the public names of a module, but not of public modules."""
        for name in self._package.exported(module):
            if name in MODULES:
                continue
            found = self._package.find(module, name)
            if found is None:
                self.faults.append(f"{full_name(module, name)}: no function or class in the package has this name")
            else:
                yield name, *found

    def _list_anchors(self):
        for module in MODULES:
            for name, owner, node in self._exported(module):
                whole = full_name(module, name)
                self._anchors[whole] = slug(whole)
                if isinstance(node, ast.ClassDef):
                    self._anchors |= {f"{whole}.{method}": slug(f"{whole}.{method}") for method in self._package.methods(owner, node)
                                      if owner not in CALLBACKS}
            if module:
                self._anchors[f"sluice.{module}"] = slug(f"sluice.{module}")
        self.faults.clear()  # They are found again.

    def _add_module(self, module):
        whole = full_name(module)
        doc = parse_docstring(ast.get_docstring(self._package.trees[module]))
        if not doc.text:
            self.faults.append(f"{whole} has no docstring")
        self._parts.append(f"## `{whole}`\n\n{self._markdown(doc.text, whole)}\n")
        for name, owner, node in self._exported(module):
            self._add(full_name(module, name), owner, node)

    def _add(self, whole, module, node):
        doc = parse_docstring(ast.get_docstring(node))
        if isinstance(node, ast.FunctionDef):
            self.faults += faults_of_function(whole, node, doc)
            self._add_entry("###", whole, signature(whole, node), doc, whole)
            return
        self.faults += faults_of_class(whole, self._package, module, node, doc)
        constructor = self._package.constructor(module, node)
        shown = signature(whole, constructor) if constructor and "Args" in doc.sections else ""
        self._add_entry("###", whole, shown, doc, whole)
        if module in CALLBACKS:
            return
        for name, function in self._package.methods(module, node).items():
            own = parse_docstring(ast.get_docstring(function))
            if own.text:
                shown = "" if is_property(function) else signature(name, function)
                self._add_entry("####", f"{whole}.{name}", shown, own, whole)

    def _add_entry(self, level, whole, shown, doc, scope):
        lines = [f"{level} `{whole}`", ""]
        lines += ["```python", shown, "```", ""] if shown else []
        lines += [self._markdown(doc.text, scope), ""]
        for section, entries in doc.sections.items():
            if section == "Returns":
                lines += [f"**Returns:** {self._markdown(entries[0][1], scope)}", ""]
                continue
            lines += [f"**{'Arguments' if section == 'Args' else section}:**", ""]
            lines += [f"- {', '.join(f'`{name}`' for name in names.split(', '))}: {self._markdown(text, scope)}" for names, text in entries]
            lines += [""]
        self._parts.append("\n".join(lines))

    def _markdown(self, text, scope):
        """Returns a text of a docstring with links. Indented blocks are code and stay as they are."""
        lines = [line if line.startswith("    ") else self._linked(line, scope) for line in text.split("\n")]
        return "\n".join(lines)

    def _linked(self, line, scope):
        line = re.sub(r"(`*)\bdocs/([\w-]+)\.md\b\1", r"[\2.md](\2.md)", line)
        parts = re.split(r"(``.+?``|`[^`]+`)", line)
        for i, part in enumerate(parts):
            if part.startswith("``"):
                parts[i] = part[1:-1]
            elif part.startswith("`"):
                anchor = self._anchor(part.strip("`"), scope)
                parts[i] = f"[{part}](#{anchor})" if anchor else part
            else:
                parts[i] = re.sub(r"\barXiv:(\d{4}\.\d{4,5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", part)
        return "".join(parts)

    def _anchor(self, name, scope):
        """Returns the anchor of a name as a docstring in the scope has it."""
        for whole in (name, f"{scope}.{name}", f"{scope.rpartition('.')[0]}.{name}", f"sluice.{name}"):
            if whole in self._anchors and whole != scope:
                return self._anchors[whole]
        return ""


def full_name(module, name=""):
    return ".".join(part for part in ("sluice", module, name) if part)


def slug(text):
    """Returns the anchor of a heading as mkdocs.yml configures it."""
    return re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")


def signature(name, function):
    """Returns the call, with one line for each argument if they do not fit in one."""
    shown = argument_texts(function)
    returns = f" -> {ast.unparse(function.returns)}" if function.returns and function.name != "__init__" else ""
    line = f"{name}({', '.join(shown)}){returns}"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {text},\n" for text in shown) + f"){returns}"


def argument_texts(function):
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    texts = [argument_text(argument, default) for argument, default in zip(plain, defaults)]
    if arguments.vararg:
        texts.append("*" + argument_text(arguments.vararg, None))
    elif arguments.kwonlyargs:
        texts.append("*")
    texts += [argument_text(argument, default) for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    if arguments.kwarg:
        texts.append("**" + argument_text(arguments.kwarg, None))
    return [text for text in texts if not re.match(r"(self|cls)\b|_", text)]


def argument_text(argument, default):
    text = argument.arg + (f": {ast.unparse(argument.annotation)}" if argument.annotation else "")
    if default is None:
        return text
    return text + (" = " if argument.annotation else "=") + ast.unparse(default)


def make_page(root):
    """Returns the page's text and its faults."""
    page = Page(Package(root / PACKAGE))
    return page.text, page.faults


def main():
    text, faults = make_page(pathlib.Path(sys.argv[1]))
    for fault in faults:
        print(fault, file=sys.stderr)
    print(text)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
