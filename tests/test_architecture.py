"""The arrows of the house go down only, and the light rooms stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# A room may import itself and the rooms after it.
ROOMS = ["lang", "runtime", "constrained", "radix", "kernels", "errors"]
HEAVY = {"torch", "triton", "flashinfer", "transformers"}


def python_files(room: str) -> Iterator[Path]:
    return (ROOT / room).rglob("*.py")


def imports_of(path: Path) -> Iterator[tuple[str, bool]]:
    """Everything that a file imports (module or module.name), lazily too, and whether the import stands at module level."""
    tree = ast.parse(path.read_text())
    top = {id(node) for node in ast.walk(tree)} - {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or is_type_checking(outer)
        for inner in ast.walk(outer)
        if inner is not outer
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write `from sapwood...`"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", id(node) in top


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


@pytest.mark.parametrize("room", ROOMS[:-1])
def test_a_room_imports_only_rooms_below_it(room: str) -> None:
    allowed = set(ROOMS[ROOMS.index(room) :])
    upward = []
    for path in python_files(room):
        for module, _ in imports_of(path):
            parts = module.split(".")
            if parts[0] == "sapwood" and len(parts) > 1 and parts[1] in ROOMS and parts[1] not in allowed:
                upward.append(f"{path.relative_to(ROOT)} imports {module}")
            if parts[0] in ROOMS:
                upward.append(f"{path.relative_to(ROOT)} imports {module}; write sapwood.{module}")
    assert not upward, "\n".join(upward)


@pytest.mark.parametrize("room", ROOMS[:-1])
def test_modules_of_a_room_do_not_import_each_other_in_a_circle(room: str) -> None:
    graph: dict[str, set[str]] = {}
    for path in python_files(room):
        name = ".".join(["sapwood", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")
        graph[name] = {module for module, top in imports_of(path) if top}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name in done:
            return
        for imported in graph.get(name, ()):
            module = imported if imported in graph else imported.rpartition(".")[0]
            if module in graph and module != name:
                visit(module, (*trail, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_torch_is_imported_at_module_level_only_by_the_kernels_that_are_made_of_it() -> None:
    allowed = ("kernels/reference", "kernels/triton", "kernels/cuda", "kernels/flashinfer")
    found = [
        str(path.relative_to(ROOT))
        for room in ROOMS[:-1]
        for path in python_files(room)
        for module, top in imports_of(path)
        if top and module.split(".")[0] in HEAVY and not str(path.relative_to(ROOT)).startswith(allowed)
    ]
    assert not found, found


def test_importing_sapwood_loads_nothing_heavy() -> None:
    code = "import sapwood, sys; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not HEAVY.intersection(loaded)
    assert not {"numpy", "zmq", "fastapi", "tokenizers"}.intersection(loaded)


def test_every_public_name_resolves() -> None:
    import sapwood

    for name in sapwood.__all__:
        assert getattr(sapwood, name) is not None


def test_no_file_is_afraid_of_being_read() -> None:
    sources = [p for room in ROOMS[:-1] for pattern in ("*.py", "*.cpp", "*.h") for p in (ROOT / room).rglob(pattern)]
    long = {str(p.relative_to(ROOT)): n for p in sources if (n := len(p.read_text().splitlines())) > 500}
    assert not long, f"over 500 lines, split by idea: {long}"
