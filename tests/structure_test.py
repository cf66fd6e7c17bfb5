# SPDX-License-Identifier: Apache-2.0
"""The check of sizes itself: each rule finds a planted fault, and passes what is just within its limit."""
import collections
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import check_structure  # noqa: E402
import cxx_outline  # noqa: E402

Done = collections.namedtuple("Done", "returncode stdout stderr")


def run(folder, arguments):
    """As `check_structure.py FOLDER ARGUMENTS...`, in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), unittest.mock.patch.object(sys, "argv", ["check_structure.py", folder, *arguments]):
        try:
            return Done(check_structure.main() or 0, out.getvalue(), "")
        except SystemExit as ended:
            return Done(1, out.getvalue(), str(ended.code))


def check(files, *arguments, after=None):
    """What the check says of a tree of these files. `after` is called with the tree before it goes."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        done = run(folder, arguments)
        if after is not None:
            after(root)
        return done


def function(lines, head="void Run()"):
    return head + " {\n" + "  Go();\n" * (lines - 2) + "}\n"


def python_function(lines):
    return "def run():\n" + "    go()\n" * (lines - 1)


def exceptions(*lines):
    return {"tools/structure_exceptions.txt": "".join(line + "\n" for line in lines)}


def fat_class(fields, name="Fat"):
    return f"class {name} {{\n public:\n  void Go();\n\n private:\n" + "".join(f"  int x{i}_ = 0;\n" for i in range(fields)) + "};\n"


def methods_of(name, count, lines):
    return "".join(function(lines, f"void {name}::Go{i}()") for i in range(count))


class StructureTest(unittest.TestCase):
    def passes(self, files):
        done = check(files)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def fails(self, files, *texts):
        done = check(files)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for text in texts:
            self.assertIn(text, done.stdout)
        self.assertIn(f", {len(texts)} against the rules", done.stdout)

    def test_functions(self):
        self.passes({"a/a.cc": function(70), "a/a.py": python_function(70)})
        self.fails({"a/a.cc": "\n" + function(71)}, "a/a.cc:2: Run has 71 lines")
        self.fails({"a/a.h": "struct X {\n" + function(71) + "};\n"}, "a/a.h:2: Run has 71 lines")
        self.fails({"a/a.cc": function(71, "TEST_F(Suite, Name)")}, "TEST_F has 71 lines")
        self.fails({"a/a.py": python_function(71)}, "a/a.py:1: run has 71 lines")
        self.fails({"a/a.py": "class X:\n" + "".join(f"    {line}\n" for line in python_function(71).splitlines())},
                   "a/a.py:2: run has 71 lines")

    def test_files(self):
        for name in ("a/a.cc", "a/a.h", "a/a.cu", "a/a.py", "a/a.sh", ".ci/run"):
            self.passes({name: "\n" * 450})
            self.fails({name: "\n" * 451}, f"{name}: 451 lines")
        self.passes({"a/a.cc": "", "a/a.md": "\n" * 900, "tests/data/a.py": "\n" * 900, "build/a.cc": "\n" * 900})

    def test_lines_of_a_class_are_those_of_all_its_files(self):
        header = {"a/fat.h": fat_class(1)}  # Seven lines.
        self.passes(header | {"a/one.cc": methods_of("Fat", 8, 50),
                               "a/two.cc": methods_of("Fat", 3, 50) + methods_of("Other", 1, 50) + methods_of("Fat", 1, 43)})
        self.fails(header | {"a/one.cc": methods_of("Fat", 8, 50), "a/two.cc": methods_of("Fat", 4, 50)},
                   "a/fat.h:Fat: 607 lines over all its files")

    def test_an_inner_class_counts_for_the_one_around_it(self):
        files = {"a/fat.h": "class Fat {\n  struct Inner { void Go0(); };\n};\n", "a/a.cc": methods_of("Fat::Inner", 8, 50),
                 "a/b.cc": methods_of("Fat", 5, 50)}
        self.fails(files, "a/fat.h:Fat: 653 lines")
        apart = {"a/fat.h": "class Fat {\n  struct Inner;\n};\n", "a/a.cc": methods_of("Fat", 8, 50),
                 "a/b.cc": "struct Fat::Inner {\n" + methods_of("X", 4, 50).replace("X::", "") + "};\n"}
        self.fails(apart, "a/fat.h:Fat: 605 lines")

    def test_classes_of_one_name_in_two_folders_are_two(self):
        self.passes({"a/fat.h": fat_class(1), "a/a.cc": methods_of("Fat", 8, 50), "b/fat.h": fat_class(1), "b/a.cc": methods_of("Fat", 8, 50)})
        self.passes({"a/a.cc": fat_class(1) + methods_of("Fat", 7, 50), "a/b.cc": fat_class(1) + methods_of("Fat", 7, 50)})

    def test_methods_in_another_folder_count_for_the_class_that_their_file_includes(self):
        self.fails({"a/fat.h": fat_class(1), "a/a.cc": methods_of("Fat", 8, 50),
                    "b/b.cc": '#include "a/fat.h"\n' + methods_of("a::Fat", 8, 50)}, "a/fat.h:Fat: 807 lines")

    def test_fields(self):
        self.passes({"a/fat.h": fat_class(25)  + "void Fat::Go() {}\n"})
        self.fails({"a/fat.h": fat_class(26), "a/fat.cc": "void Fat::Go() {}\n"}, "a/fat.h:Fat: 26 fields")
        self.passes({"a/fat.h": fat_class(26).replace("  void Go();\n", "")})  # A record.

    def test_exceptions(self):
        fat = {"a/a.cc": "\n" * 453, "a/fat.h": fat_class(30), "a/fat.cc": methods_of("Fat", 8, 50), "b/fat.cc": '#include "a/fat.h"\n' + methods_of("Fat", 5, 50)}
        allowed = ["file a/a.cc 460 a table", "class a/fat.h:Fat 690 to be split", "fields a/fat.h:Fat 30 to be split"]
        self.passes(fat | exceptions("# a comment", "", *allowed))
        self.fails(fat | exceptions("file a/a.cc 452 a table", *allowed[1:]), "a/a.cc: 453 lines, the limit is 452")
        self.fails(fat | exceptions("file a/a.cc 461 a table", *allowed[1:]), "file a/a.cc is down to 453: lower its limit to 460")
        self.fails(fat | exceptions(*allowed[:2], "fields a/fat.h:Fat 31 to be split"), "is down to 30: lower its limit to 30")
        self.fails(fat | exceptions(allowed[0], "class a/fat.h:Fat 700 to be split", allowed[2]), "lower its limit to 690")

    def test_an_exception_that_is_not_needed(self):
        self.fails({"a/a.cc": "\n" * 450} | exceptions("file a/a.cc 450 a table"), "file a/a.cc needs no exception any more (450)")
        self.fails({"a/a.cc": ""} | exceptions("file a/b.cc 460 a table"), "there is no file a/b.cc")

    def test_an_exception_without_a_reason_or_twice(self):
        for lines in (["file a/a.cc 460"], ["folder a 460 why"], ["file a/a.cc many why"], ["file a/a.cc 460 why"] * 2):
            done = check({"a/a.cc": "\n" * 453} | exceptions(*lines))
            self.assertEqual(done.returncode, 1)
            self.assertIn("tools/structure_exceptions.txt:", done.stderr)

    def test_record(self):
        files = {"a/a.cc": "\n" * 465, "a/b.cc": ""} | exceptions("# why", "file a/a.cc 460 a table", "file a/b.cc 460 not any more")
        def expect(root):
            self.assertEqual((root / "tools/structure_exceptions.txt").read_text(), "# why\nfile a/a.cc 470 a table\n")
        self.assertEqual(check(files, "--record", after=expect).returncode, 0)

    def test_examples(self):
        call = "//   parallel->Synchronize();                                  // .grad now holds the mean over all\n"
        self.fails({"a/a.h": "// As:\n//\n" + call + "//   workers optimizer.step();\n"}, "a/a.h:4: the formatter broke the line above")
        self.passes({"a/a.h": "// As:\n//\n" + call + "//                                     workers\n//   optimizer.step();\n"})
        self.passes({"a/a.h": call.replace("now holds the mean over all", "is the mean") + "//   optimizer.step();\n"})
        item = "//   1. Largest makes acc, and a number that normalizes it, which goes to the residual of each of\n"
        self.passes({"a/a.h": item + "//      those.\n//   2. Next.\n", "a/b.h": item + "//   2. Next.\n", "a/c.cc": item + "//   those.\n"})
        self.fails({"a/a.h": item + "//   those.\n"}, "whose rest is `those.`")
        self.fails({"a/a.h": "class X {\n" + ("  " + item).replace("each of", "each") + "  //   those.\n};\n"}, "a/a.h:3")

    def test_an_empty_tree_is_an_error(self):
        self.assertEqual(check({}).returncode, 1)


def names(text):
    return [(found.name, found.lines) for found in cxx_outline.outline(text).functions]


def fields(text):
    return [(found.name, found.fields) for found in cxx_outline.outline(text).classes]


class OutlineTest(unittest.TestCase):
    def test_functions(self):
        self.assertEqual(names("namespace a {\nnamespace {\nint F(int x = 1) {\n  if (x) {\n  }\n}\n}\n}\n"), [("F", 4)])
        self.assertEqual(names("A::A(int x)\n    : B(x), y_{x} {\n}\n"), [("A::A", 3)])
        self.assertEqual(names("template <class T>\nauto A<T>::F() const -> std::vector<T> {\n}\n"), [("A::F", 3)])
        self.assertEqual(names("bool operator==(X a, X b) {\n}\nX& X::operator=(X&& x) noexcept {\n}\nbool X::operator()(int a) {\n}\n"
                               "bool operator<(X a, X b) {\n}\n"),
                         [("operator==", 2), ("X::operator=", 2), ("X::operator()", 2), ("operator<", 2)])
        self.assertEqual(names("void F() ABSL_LOCKS_EXCLUDED(mutex_) {\n}\n"), [("F", 2)])

    def test_no_functions(self):
        self.assertEqual(names("constexpr int kTable[] = {F(1), G(2)};\nint x{F(3)};\nenum class E { kA = F(1) };\nvoid F();\n"), [])
        self.assertEqual(names("INSTANTIATE_TEST_SUITE_P(\n    All, Test,\n    Values(Case{1}),\n    [](const auto& x) { return x; });\nvoid G() {}\n"),
                         [("G", 1)])

    def test_signs_in_strings_and_comments(self):
        self.assertEqual(names('void F() {\n  G("}"); // }\n  H(\'}\'); /* } */\n  I(R"x(}")x");\n  J(1\'000\'000);\n}\n#define K {\nvoid L() {}\n'),
                         [("F", 6), ("L", 1)])

    def test_fields(self):
        self.assertEqual(fields("""
class A final : public B<int> {
 public:
  using X = int;
  enum class E { kA, kB };
  struct Inner { int a = 0, b = 0; std::vector<int> c{1, 2}; };
  explicit A(int x) : x_(x) {}
  static constexpr int kMax = 3;
  A(const A&) = delete;
  int F(int) const;
  virtual void G() = 0;
  friend class C;

 private:
  const int x_;
  std::function<void(int)> call_{};
  void (*pointer_)(int) = nullptr;
  std::map<std::string, std::pair<int, int>> map_ ABSL_GUARDED_BY(mutex_);
  std::array<int, 4> many_ = {1, 2, 3, 4};
  Inner inner_;
};
"""), [("A", 6), ("A::Inner", 3)])


if __name__ == "__main__":
    unittest.main()
