"""Reads layout.map: where every file, library and namespace was and is."""
import fnmatch
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent


def tracked(root):
    """The paths of all files that git has, or will have: new ones that it does not ignore too."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"],
                            check=True, capture_output=True, text=True).stdout
    return sorted({path for path in listed.split("\0") if path and (root / path).is_file()})


def folder_of(path):
    return path.rpartition("/")[0]


def is_in(path, folder):
    return folder in ("", ".") or path == folder or path.startswith(folder + "/")


class Library:
    def __init__(self, name, home, folders, was):
        self.name, self.home = name, home
        self.folders = [] if folders == "-" else folders.split(",")
        self.was = was.split(",")


class Map:
    def __init__(self, text):
        self.folders, self.files, self.mentions, self.libraries = [], [], {}, {}
        self.pins, self.targets, self.splits, self.homes, self.keeps = [], {}, [], {}, []
        self.namespaces = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            try:
                self._row(*words)
            except (TypeError, AttributeError) as error:
                raise SystemExit(f"layout.map:{number}: {line.strip()}: {error}") from None
        self.new_folders = {new for _, new in self.folders} | {new.rstrip("/") for _, new in self.files if new.endswith("/")}

    def _row(self, kind, *rest):
        getattr(self, "_" + kind)(*rest)

    def _folder(self, old, new):
        self.folders.append((old, new))

    def _file(self, old, new):
        self.files.append((old, new))

    def _mention(self, old, new):
        self.mentions[old] = new

    def _library(self, name, home, folders, was):
        self.libraries[name] = Library(name, home, folders, was)

    def _pin(self, pattern, name):
        self.pins.append((pattern, name))

    def _target(self, old, new):
        self.targets[old] = new

    def _split(self, old, new, folder):
        self.splits.append((old, new, folder))

    def _home(self, name, folder):
        self.homes[name] = folder

    def _namespace(self, folder, name):
        self.namespaces[folder] = name

    def _keep(self, pattern):
        self.keeps.append(pattern)

    def new_path(self, path):
        """Where `path` is from now on; None: no row says. A path that is new already stays."""
        for pattern, new in self.files:
            if fnmatch.fnmatchcase(path, pattern) and path.count("/") == pattern.count("/"):
                return new + path.rpartition("/")[2] if new.endswith("/") else new
        row = max(((old, new) for old, new in self.folders if is_in(path, old)), key=lambda row: len(row[0]), default=None)
        settled = max((new for new in self.new_folders if is_in(path, new)), key=len, default="")
        if row is not None and len(row[0]) >= len(settled):
            return row[1] + path[len(row[0]):]
        if settled or any(is_in(path, keep) or (fnmatch.fnmatchcase(path, keep) and path.count("/") == keep.count("/"))
                          for keep in self.keeps):
            return path
        return None

    def library_of(self, path):
        """The library whose folder this file, by its new path, is in; None: no library's."""
        for pattern, name in self.pins:
            if fnmatch.fnmatchcase(path, pattern):
                return name
        best = max(((folder, library.name) for library in self.libraries.values() for folder in library.folders
                    if is_in(path, folder)), key=lambda pair: len(pair[0]), default=None)
        return best and best[1]

    def new_target(self, name):
        return self.targets.get(name, name)

    def namespace_of(self, path):
        best = max((folder for folder in self.namespaces if is_in(path, folder)), key=len, default=None)
        return best and self.namespaces[best]


def read_map():
    return Map((HERE / "layout.map").read_text())


def moves_of(layout, paths):
    """{old: new} of all; an error names those that no row is for, and those that two would be."""
    moves, unmapped = {}, []
    for path in paths:
        new = layout.new_path(path)
        if new is None:
            unmapped.append(path)
        else:
            moves[path] = new
    if unmapped:
        raise SystemExit("no row of layout.map says where these go:\n  " + "\n  ".join(unmapped))
    taken = {}
    for old, new in moves.items():
        if new in taken and not new.endswith("CMakeLists.txt"):
            raise SystemExit(f"{old} and {taken[new]} would both be {new}")
        taken[new] = old
    return moves
