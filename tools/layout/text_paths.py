"""Rewrites mentions of paths in texts: includes, comments, documents, scripts, configurations."""
import posixpath
import re

from layout_map import folder_of

# Neither holds mentions of paths that follow the tree: bytes, corpora, and what was true of a release.
UNTOUCHED = re.compile(r"^(tests/compatibility/\d|tests/fuzz/corpus/|tests/golden/|tests/data/|tools/layout/|CHANGELOG\.md$|"
                       r"\.git-blame-ignore-revs$|docs/images/|LICENSE$)")
SOURCE = re.compile(r"\.(h|cc|cu|cuh|in)$")


class Mentions:
    """What the words of texts that name old paths become. `moves`: {old: new} of all files."""

    def __init__(self, layout, moves):
        self.layout, self.moves = layout, moves
        self.unresolved = []
        self.stems = {}
        for old, new in moves.items():
            stem, new_stem = (posixpath.splitext(path)[0] for path in (old, new))
            self.stems.setdefault(stem, set()).add(new_stem)
        self.folders = {}
        for old, new in moves.items():
            folder, to = folder_of(old), folder_of(new)
            while folder:
                self.folders.setdefault(folder, set()).add(to)
                folder, to = folder_of(folder), folder_of(to)
        changed = {old for old in self.folders if any(a != b and a.startswith(old + "/") for a, b in moves.items())}
        tops = "|".join(sorted(map(re.escape, changed), key=len, reverse=True))
        self.pattern = re.compile(
            rf"(?P<before>^|[^\w/.-]|(?:\.\./)+|\$\{{?\w+\}}?/|\{{\w+\}}/)(?P<path>(?:{tops})(?:/[\w.*-]*)*)(?![\w*])", re.M) if tops else None

    def folder(self, old):
        """The new name of a folder, or of each part of it that texts must tell apart; None: it stays or is not one folder."""
        if old in self.layout.mentions:
            return self.layout.mentions[old]
        for row, new in self.layout.folders:
            if row == old:
                return new
        return None

    def new_mention(self, path):
        """The new words for `path`, or None if they stay."""
        bare = path.rstrip("/")
        if path in self.moves:
            return self.moves[path]
        if "*" in bare:
            known = self.folder(folder_of(bare))
            return None if known is None else known + bare[len(folder_of(bare)):]
        if bare in self.folders:
            # One word alone is a word, not a folder.
            if "/" not in path:
                return None
            known = self.folder(bare)
            return None if known is None else known + path[len(bare):]
        if len(self.stems.get(bare, ())) == 1:
            return next(iter(self.stems[bare]))
        return None

    def rewrite(self, where, new_where, text):
        """`text` of the file `where`, which is `new_where` from now on."""
        if self.pattern is None:
            return text
        def word(match):
            before, path = match["before"], match["path"]
            tail = path[len(path.rstrip(".")):]
            path = path.rstrip(".")
            if before.startswith("../"):
                old = posixpath.normpath(posixpath.join(folder_of(where), before + path))
                new = self.new_mention(old) or old
                moved = new != old or folder_of(where) != folder_of(new_where)
                if not moved or (old not in self.moves and old not in self.folders):
                    return match[0]
                return posixpath.relpath(new, folder_of(new_where) or ".") + ("/" if path.endswith("/") else "") + tail
            new = self.new_mention(path)
            if new is None:
                top = path.split("/")[0]
                bare = path.rstrip("/")
                if bare.count("/") and bare not in self.moves and bare not in self.folders and bare not in self.stems:
                    self.unresolved.append(f"{where}: {top}: {match[0].strip()}")
                return match[0]
            return before + new + tail
        return self.pattern.sub(word, text)
