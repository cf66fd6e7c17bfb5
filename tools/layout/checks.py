"""What holds of a tree in the new layout, found without a compiler."""
import collections
import posixpath
import re
import subprocess

import cmake_lists
import text_paths
from layout_map import folder_of

SOURCE = re.compile(r"\.(h|cc|cu|cuh)$")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)
OUTSIDE = re.compile(r"^(absl|gmock|gtest|grpc|grpcpp|hwy|google|nlohmann|openssl|prometheus|yaml-cpp|CLI|torch|ATen|c10|caffe2|benchmark|sluice)/")
# Files whose sources belong to no target: included by others, or a program's that CMake makes elsewhere.
BY_NAME = re.compile(r"^tests/compatibility/")
# Words of texts that look like paths of the tree: two parts or more, the first of which is a folder of it.
WORD = re.compile(r"(?<![\w/.$@:}%>-])((?:\.\./)*(?:[\w.-]+/)+[\w.*-]*)")


def strip(text):
    """C++ without comments and strings."""
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', lambda m: '""' if m[0][0] == '"' else " ", text,
                  flags=re.S)


class Tree:
    def __init__(self, root, paths):
        self.root, self.paths, self.known = root, paths, set(paths)
        self.folders = {""}
        for path in paths:
            folder = folder_of(path)
            while folder:
                self.folders.add(folder)
                folder = folder_of(folder)
        self.texts = {}
        for path in paths:
            try:
                self.texts[path] = (root / path).read_bytes().decode()
            except UnicodeDecodeError:
                pass
        self.includes = {path: INCLUDE.findall(self.texts[path]) for path in paths if SOURCE.search(path) or path.endswith(".in")}

    def closure(self, path):
        found, todo = set(), [path]
        while todo:
            for include in self.includes.get(todo.pop(), ()):
                if include in self.known and include not in found:
                    found.add(include)
                    todo.append(include)
        return found

    def targets(self):
        """{target: its sources}, with all files that CMakeLists.txt name as sources of it."""
        found = collections.defaultdict(list)
        for path, text in self.texts.items():
            if not path.endswith("CMakeLists.txt"):
                continue
            folder = folder_of(path)
            for command in cmake_lists.parse(text)[0]:
                if command.name not in cmake_lists.KEYWORDS and command.name not in (
                        "add_library", "add_executable", "sluice_cuda_program", "sluice_cuda_object", "foreach"):
                    continue
                words = [word.strip('"') for word in command.words()]
                loop = [""]
                for word in words[1:]:
                    if not re.search(r"\.(cc|cu)$", word) or word.startswith("${CMAKE_CURRENT_BINARY_DIR}"):
                        continue
                    word = word.replace("${PROJECT_SOURCE_DIR}/", "/")
                    name = word[1:] if word.startswith("/") else posixpath.normpath(posixpath.join(folder, word))
                    for value in loop:
                        found[f"{words[0]}{value}"].append(name)
        return found


def includes_resolve(tree):
    for path, includes in tree.includes.items():
        for include in includes:
            if include not in tree.known and not OUTSIDE.match(include):
                yield f"{path}: includes {include}, which is not in the tree"


def in_one_target(tree):
    targets = tree.targets()
    count = collections.Counter()
    kinds = collections.defaultdict(list)
    for target, sources in targets.items():
        for source in set(sources):
            count[source] += 1
            kinds[source].append(target)
            if "${name}" not in source and source not in tree.known:
                yield f"target {target}: source {source} is not in the tree"
    for path in tree.paths:
        if not re.search(r"\.(cc|cu)$", path) or BY_NAME.match(path):
            continue
        generic = posixpath.join(folder_of(path), "${name}_" + path.rpartition("_")[2])
        if count[path] == 0 and count[generic] == 0:
            yield f"{path} is in no target"
        # Tests may share a source; a library's or program's is one target's, but for a worker with a made-up GPU.
        if count[path] > 1 and not path.startswith("tests/") and set(kinds[path]) != {"sluice-worker", "fake_gpu_worker"}:
            yield f"{path} is in {', '.join(kinds[path])}"
    for path, text in tree.texts.items():
        if path.endswith("CMakeLists.txt"):
            for command in cmake_lists.parse(text)[0]:
                if command.name in cmake_lists.KEYWORDS:
                    call = cmake_lists.Call(command)
                    for word in call.lists.get("HEADERS", []):
                        if posixpath.normpath(posixpath.join(folder_of(path), word)) not in tree.known:
                            yield f"target {call.name}: header {word} is not in the tree"
                elif command.name == "add_subdirectory":
                    under = posixpath.normpath(posixpath.join(folder_of(path), command.words()[0]))
                    if under + "/CMakeLists.txt" not in tree.known:
                        yield f"{path}: no CMakeLists.txt in {under}"


def links_resolve(tree):
    """What is linked is a library; names of the old layout are gone."""
    known = {"sluice::libtorch", "sluice::proto", "sluice::cuda_device"}
    for path, text in tree.texts.items():
        if path.endswith("CMakeLists.txt"):
            for command in cmake_lists.parse(text)[0]:
                if command.name == "sluice_library":
                    known.add("sluice::" + command.words()[0])
                elif command.name == "add_library" and "ALIAS" in command.words():
                    known.add(command.words()[0])
    for path, text in tree.texts.items():
        if path.endswith(("CMakeLists.txt", ".cmake")):
            for name in set(re.findall(r"(?<![\w])sluice::\w+", re.sub(r"#[^\n]*", "", text))) - known:
                if name != "sluice::":
                    yield f"{path}: links {name}, which is no library"


def layers(tree):
    done = subprocess.run(["python3", "tools/check_layers.py", "."], cwd=tree.root, capture_output=True, text=True)
    if done.returncode != 0:
        yield from done.stdout.splitlines()


def no_cycles(tree, layout):
    """Folders of libraries that include each other, other than a folder and what is in it."""
    def home(path):
        name = layout.library_of(path)
        return None if name in {library for _, library in layout.pins} else name
    uses = collections.defaultdict(set)
    example = {}
    for path, includes in tree.includes.items():
        mine = home(path)
        for include in includes:
            other = include in tree.known and home(include)
            if mine and other and other != mine:
                uses[mine].add(other)
                example.setdefault((mine, other), f"{path} -> {include}")
    def reach(name):
        found, todo = set(), [name]
        while todo:
            for other in uses[todo.pop()]:
                if other not in found:
                    found.add(other)
                    todo.append(other)
        return found
    for name in sorted(uses):
        for other in sorted(uses[name]):
            if name in reach(other) and name < other:
                back = next((example[pair] for pair in example if pair[0] == other and pair[1] in {name} | reach(other) & uses[other]), "")
                yield f"{name} and {other} include each other: {example[name, other]}; {back}"


def paths_exist(tree):
    """Paths that documents, tools, CI and comments name."""
    tops = {path.split("/")[0] for path in tree.paths if "/" in path}
    stems = {posixpath.splitext(path)[0] for path in tree.paths}
    skip = re.compile(r"^tests/(layers|protos|structure)_test\.py$")
    for path, text in tree.texts.items():
        if text_paths.UNTOUCHED.match(path) or skip.match(path) or path.endswith("CMakeLists.txt"):
            continue
        comments = text
        if SOURCE.search(path):
            comments = "\n".join(re.findall(r"//[^\n]*", text)) + "\n".join(re.findall(r'HWY_TARGET_INCLUDE "[^"]*"', text))
        for word in set(WORD.findall(comments)):
            bare = word.rstrip(".").rstrip("/")
            if bare.startswith("../"):
                name = posixpath.normpath(posixpath.join(folder_of(path), bare))
            else:
                name = bare
            top = name.split("/")[0]
            if re.search(r"/[A-Z]+$", name):
                continue  # A placeholder.
            if top not in tops or "*" in name or name in tree.known or name in tree.folders or name in stems:
                continue
            if not re.search(r"\.(h|cc|cu|cuh|py|sh|md|yaml|proto|txt|json|cmake|html|in)$", name) and name.count("/") < 1:
                continue
            if folder_of(name) in tree.folders and not re.search(r"\.\w+$", name) and name.count("/") == 1 and not re.search(
                    rf"`{re.escape(word)}`", comments):
                continue  # "server/worker" of a sentence.
            yield f"{path}: names {word}, which is not in the tree"


def collisions(tree):
    """{target: {name: [files]}} of file-local names that more than one source of a target has: a unity build may see both."""
    result = {}
    for target, sources in tree.targets().items():
        names = collections.defaultdict(set)
        for source in set(sources):
            if source in tree.texts and "hwy/foreach_target.h" not in tree.texts[source]:  # Those are never together.
                for name in local_names(tree.texts[source]):
                    names[name].add(source)
        found = {name: sorted(files) for name, files in names.items() if len(files) > 1}
        if found:
            result[target] = found
    return result


DECLARED = [re.compile(r"^(?:class|struct|enum class|enum) (\w+)"), re.compile(r"^using (\w+) ="),
            re.compile(r"^(?:(?:static|inline|constexpr|const|thread_local) )+[\w:<>,*& ]+?[ *&](\w+)(?:\[[^\]]*\])?(?: =|\{|;)"),
            re.compile(r"^(?:[\w:<>,*&\[\] ]+[ *&]|[A-Z_]+\()(\w+)\(")]


def local_names(text):
    """Names that unnamed namespaces of `text` declare, and static ones."""
    # Functions in unnamed namespaces may overload each other; with the same parameters they collide. Parameters are compared.
    inside, names, depth_names = False, set(), []
    lines = strip(text).splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        if re.match(r"^namespace \{", line):
            inside = True
        elif inside and re.match(r"^\}\s*$", line) and namespace_ends(lines, at, text):
            inside = False
        elif (inside or line.startswith("static ")) and line and not line[0].isspace() and line[0] not in "}#/":
            whole = line
            ahead = at
            while whole.count("(") > whole.count(")") and ahead + 1 < len(lines):
                ahead += 1
                whole += " " + lines[ahead].strip()
            for form, pattern in enumerate(DECLARED):
                match = pattern.match(whole)
                if match:
                    name = match[1]
                    if form == 3 and name not in ("TEST", "TEST_P", "TEST_F", "INSTANTIATE_TEST_SUITE_P", "operator"):
                        parameters = whole[match.end():].split(")")[0]
                        name += "(" + re.sub(r"\s+", " ", re.sub(r"(\w[\w:<>,*& ]*[ *&])\w+(?=,|$| =)", r"\1", parameters)).strip() + ")"
                    elif form == 3:
                        break
                    names.add(name)
                    break
        at += 1
    return names


def namespace_ends(lines, at, text):
    original = text.splitlines()[at] if at < len(text.splitlines()) else ""
    return bool(re.match(r"^\}  // namespace\s*$", original))


def check(root, layout, paths):
    tree = Tree(root, paths)
    failed = False
    for title, problems in (("files that layout.map moves", [f"{path} -> {layout.new_path(path)}" for path in paths
                                                             if layout.new_path(path) != path and not path.endswith("CMakeLists.txt")]),
                            ("includes", includes_resolve(tree)), ("targets", in_one_target(tree)), ("links", links_resolve(tree)),
                            ("layers", layers(tree)), ("libraries that include each other", no_cycles(tree, layout)),
                            ("paths in texts", paths_exist(tree))):
        problems = sorted(set(problems))
        failed = failed or bool(problems)
        print(f"{title}: {'well' if not problems else str(len(problems)) + ' wrong'}")
        for problem in problems:
            print(f"  {problem}")
    sources = [path for path in paths if re.search(r"\.(cc|cu)$", path)]
    for header in ("job/job_spec.h", "compress/codec_spec.h", "protocol/compression_spec.h"):
        if header in tree.known:
            print(f"touching {header} rebuilds {sum(header in tree.closure(path) for path in sources)} of {len(sources)} sources")
    found = collisions(tree)
    print(f"file-local names that two sources of a target have: {sum(map(len, found.values()))} in {len(found)} targets")
    for target, names in sorted(found.items()):
        print(f"  {target}: " + "; ".join(f"{name} ({', '.join(posixpath.basename(file) for file in files)})"
                                         for name, files in sorted(names.items())))
    return 1 if failed else 0
