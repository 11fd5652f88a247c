"""Rules of the house that no compiler checks."""

from __future__ import annotations

import re

from . import tree

MOST_LINES = 400
MOST_BYTES = 1 << 20
TOP_LEVEL = {"pyproject.toml", "sglang_mm_ray", "rust", "tests", "bench", "README.md", "LICENSE"}

# One instruction set each, or one foreign interface each: by the file's name, or listed here with its reason.
INSTRUCTION_SETS = re.compile(
    r"/(avx2|avx512\w*|bmi2|sse\w*|neon|vnni)(_\w+)?\.rs$|/(avx2|avx512\w*|neon)/\w+\.rs$"
)
FOREIGN_FUNCTIONS = re.compile(r"/ffi\.rs$")
FOREIGN_INTERFACES = {
    "rust/src/common/mapping.rs": "memory by mmap, cut and given back by munmap",
    "rust/src/common/streaming.rs": "AVX stores past the cache, and their fence",
    "rust/tests/resize_guarded.rs": "guard pages by mmap and mprotect",
    "rust/src/python/array.rs": "lending pooled memory to numpy",
    "rust/src/python/input.rs": "borrowing buffers of Python objects",
}

# In two halves, so that this file does not hold what it looks for.
FORBIDDEN = [
    "/wo" + "rk/",
    "/ho" + "me/",
    "/ro" + "ot/",
    "crates" + ".io",
    "pypi" + ".org",
    "files.python" + "hosted",
    "deb.deb" + "ian.org",
    "static.rust-" + "lang.org",
]


def name(path: object) -> str:
    return str(path).removeprefix(f"{tree.ROOT}/")


def test_no_source_file_is_long() -> None:
    lengths = {name(path): len(path.read_text().splitlines()) for path in tree.files(".rs", ".py", ".pyi")}
    assert len(lengths) > 20
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_file_is_large() -> None:
    assert [name(path) for path in tree.files() if path.stat().st_size > MOST_BYTES] == []


def test_top_of_the_repository_is_tidy() -> None:
    tops = {path.relative_to(tree.ROOT).parts[0] for path in tree.files()}
    assert {top for top in tops if not top.startswith(".")} <= TOP_LEVEL


def test_unsafe_lives_only_in_named_files() -> None:
    assert 'unsafe_code = "deny"' in (tree.ROOT / "rust/Cargo.toml").read_text()
    allowed = [name(path) for path in tree.files(".rs") if "allow(unsafe_code)" in path.read_text()]
    strangers = [
        path
        for path in allowed
        if path not in FOREIGN_INTERFACES
        and not (INSTRUCTION_SETS.search(path) or FOREIGN_FUNCTIONS.search(path))
    ]
    assert strangers == [], "unsafe is for one instruction set or one foreign interface a file"
    stale = [path for path in FOREIGN_INTERFACES if path not in allowed]
    assert stale == [], "the list names files without unsafe"


def test_no_place_of_work_and_no_registry_is_named() -> None:
    found = []
    for path in tree.files():
        if path.suffix in {".lock", ".npz", ".jpg", ".png", ".webp"}:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{name(path)}: {word}" for word in FORBIDDEN if word in text]
    assert found == []


def test_every_python_module_says_what_it_is_for() -> None:
    silent = [
        name(path) for path in tree.files(".py") if not path.read_text().lstrip().startswith(('"""', "#!"))
    ]
    assert [path for path in silent if (tree.ROOT / path).stat().st_size > 0] == []


# A module of the core uses itself and those before it: kernels know no recipe, recipes no family.
LAYERS = (
    "error",
    "common",
    "tensor",
    "recipe",
    "families",
    "stage_times",
    "view_output",
    "processor",
    "finish",
    "pipeline",
    "registry",
    "python",
)


def test_modules_of_the_core_use_only_those_below_them() -> None:
    upwards, seen = [], set()
    for path in tree.files(".rs"):
        found = re.match(r"rust/src/(\w+)", name(path))
        if found is None or found[1] == "lib" or re.search(r"\btests\b", name(path)):
            continue
        layer = LAYERS.index(found[1])
        seen.add(found[1])
        text = path.read_text().split("#[cfg(test)]\nmod tests {")[0]
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
        for used in re.findall(r"crate::(\w+)", code):
            if used in LAYERS and LAYERS.index(used) > layer:
                upwards.append(f"{name(path)} uses {used}")
    assert upwards == []
    assert seen == set(LAYERS)


def test_a_family_uses_nothing_but_recipes() -> None:
    paths = [path for path in tree.files(".rs") if path.parent.name == "families"]
    assert len(paths) > 2
    for path in paths:
        used = set(re.findall(r"crate::(\w+)", path.read_text()))
        assert used <= {"error", "recipe", "families"}, name(path)
        assert "unsafe" not in path.read_text(), name(path)
