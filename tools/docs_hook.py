# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs.yml: pages for the repository's files outside docs/ that pages link to, the reference of the Python package, and Markdown as
the code host reads it.

A link such as ../bench/README.md or ../examples/char-gpt.yaml works on the code host. In the site the hooks turn such a file into a page
of its own, under the path that it has in the repository, and point the link to it. Only functions that MkDocs calls import MkDocs.
"""
import json
import logging
import pathlib
import posixpath
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import make_python_reference  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = "docs/"
PYTHON_REFERENCE = "python-reference.md"
FIRST_PAGE = "index.md"  # Stands for README.md, whose subject it shares.
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.S)
ITEM = re.compile(r"[-*] |\d+\. ")
LANGUAGES = {".cc": "cpp", ".h": "cpp", ".yaml": "yaml", ".py": "python", ".sh": "bash", ".proto": "protobuf", ".json": "json", ".diff": "diff"}


def in_repository(page):
    """Path of a page's source in the repository."""
    return DOCS + page if (ROOT / DOCS / page).exists() else page


def in_site(path):
    """Name that the site knows a file of the repository by."""
    return FIRST_PAGE if path == "README.md" else path.removeprefix(DOCS)


def is_local(target):
    return not re.match(r"[a-z]+:|/|#", target)


def outside_code(markdown, change):
    """Applies `change` to the parts of a text that are in no code span and no fence."""
    parts, fenced = [], False
    for line in re.split(r"(^```.*$)", markdown, flags=re.M):
        if line.startswith("```"):
            fenced = not fenced
            parts.append(line)
        elif fenced:
            parts.append(line)
        else:
            at = 0
            for span in CODE_SPAN.finditer(line):
                parts += [change(line[at:span.start()]), span.group(0)]
                at = span.end()
            parts.append(change(line[at:]))
    return "".join(parts)


def linked_files(page, markdown):
    """Files and folders outside docs/ that a page links to, by their paths in the repository."""
    found = []

    def note(text):
        for match in LINK.finditer(text):
            if not is_local(match.group(2)):
                continue
            path = posixpath.normpath(posixpath.join(posixpath.dirname(in_repository(page)), match.group(2).partition("#")[0]))
            if not path.startswith((DOCS, "..")) and path not in (".", "README.md") and (ROOT / path).exists():
                found.append(path)
        return text

    outside_code(markdown, note)
    return found


def with_site_links(page, markdown):
    """The page with links between docs/ and the rest of the repository as they are in the site."""
    folder = posixpath.dirname(in_repository(page))

    def point(match):
        target, anchor = match.group(2).partition("#")[::2]
        if not is_local(match.group(2)):
            return match.group(0)
        path = posixpath.normpath(posixpath.join(folder, target))
        if path.startswith("..") or not (ROOT / path).exists():
            return match.group(0)  # MkDocs says that it leads nowhere.
        there = posixpath.relpath(in_site(path), posixpath.dirname(page) or ".")
        return match.group(1) + there + ("#" + anchor if anchor else "") + match.group(3)

    # Links are found in the whole text, so that one whose words are in code is found too; its target is never in code.
    code = [span.span() for span in CODE_SPAN.finditer(markdown)]
    return LINK.sub(lambda match: match.group(0) if any(a <= match.start(2) < b for a, b in code) else point(match), markdown)


def with_blank_lines(markdown):
    """A blank line before each list and table that begins right below other text, which Python-Markdown needs."""
    lines, kind, fenced = [], "", False
    for line in markdown.split("\n"):
        if line.startswith("```"):
            fenced = not fenced
        here = "item" if ITEM.match(line) else "row" if line.startswith("|") else "text" if line.strip() else ""
        if not fenced and here in ("item", "row") and kind == "text":
            lines.append("")
            kind = ""
        # A line below an item goes on with it.
        kind = "item" if kind == "item" and here == "text" else here
        lines.append(line)
    return "\n".join(lines)


def pages_of_nav(entry):
    """Paths of pages in the navigation of mkdocs.yml."""
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in pages_of_nav(part)]


def notebook_page(text):
    """A notebook as a page: its text, and its code in fences."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join(parts) + "\n"


def page_of(path):
    """A file or a folder of the repository as a page."""
    if (ROOT / path).is_dir():
        names = sorted(file.name for file in (ROOT / path).iterdir() if file.is_file())
        rows = "".join(f"- [{name}]({posixpath.basename(path)}/{name})\n" for name in names)
        return f"# {path}\n\nThis is the folder `{path}` of the repository.\n\n{rows}"
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        return text
    if path.endswith(".ipynb"):
        return notebook_page(text)
    language = LANGUAGES.get(posixpath.splitext(path)[1], "text")
    return f"# {path}\n\nThis is the file `{path}` of the repository.\n\n~~~ {language}\n{text.rstrip()}\n~~~\n"


def on_files(files, config):
    from mkdocs.structure.files import File

    class RepositoryFile(File):
        """A file outside docs/ that is a page, whatever its name ends with."""

        def is_documentation_page(self):
            return True

    def add(path):
        if files.get_file_from_path(path) is not None:
            return
        file = RepositoryFile.generated(config, path, content=page_of(path))
        file.generated_by = "docs_hook"
        if not path.endswith(".md"):
            file.dest_uri = path + "/index.html"
        files.append(file)
        if path.endswith((".md", ".ipynb")) or (ROOT / path).is_dir():
            waiting.append((path, file.content_string))

    reference, faults = make_python_reference.make_page(ROOT)
    for fault in faults:
        logging.getLogger("mkdocs.hooks").warning("python: %s", fault)  # Ends a strict build.
    files.append(File.generated(config, PYTHON_REFERENCE, content=reference))
    waiting = [(file.src_uri, file.content_string) for file in files.documentation_pages()]
    for path in pages_of_nav(config.nav):
        if (ROOT / path).is_file():
            add(path)
    while waiting:
        for path in linked_files(*waiting.pop()):
            add(path)
    return files


def on_page_markdown(markdown, page, config, files):
    source = page.file.src_uri
    if page.file.generated_by and not source.endswith((".md", ".ipynb")):
        return markdown
    return with_blank_lines(with_site_links(source, markdown))
