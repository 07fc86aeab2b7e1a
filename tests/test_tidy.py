"""What must hold for the project as a whole: import directions, documentation, tidy files."""

import ast
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "infobus"
MODULES = sorted(PACKAGE.rglob("*.py"))

# From the ground up: a room imports only rooms that stand before it.
ROOMS = (
    "errors extras printable open_files subjects security keys patience bounds waiters headers "
    "objects tdl filters protocols engines stores services bus qos daemon router repository "
    "pipeline adapters bench demo console cli"
).split()
SIBLINGS = {"protocols", "engines", "stores"}
DRIVEN = {("engines", "protocols")}  # the engine of routers drives a machine of its own
ABOVE_BUS = ROOMS[: ROOMS.index("bus")]

PURE = {
    "errors",
    "printable",
    "subjects",
    "security",
    "keys",
    "patience",
    "bounds",
    "headers",
    "objects",
    "tdl",
    "filters",
    "protocols",
}
# What brings sockets, files, threads, clocks or randomness.
EFFECTS = set(
    "asyncio concurrent fcntl glob http io mmap multiprocessing os pathlib queue random sched "
    "secrets select selectors shutil signal socket socketserver sqlite3 ssl subprocess tempfile "
    "threading time urllib uuid zenoh".split()
)
# The lock of the process-wide type registry; the class UUID, of which nothing is made up.
ALLOWED_EFFECTS = {"objects": {"threading", "uuid"}}
CLOCKS_AND_FILES = re.compile(r"^(open|input|(\w+\.)*(datetime|date)\.(now|utcnow|today))$")


def room_of(module: str) -> str:
    """`infobus.objects.codec` is in the room `objects`; the package itself in the room ``."""
    room = module.partition(".")[2].partition(".")[0]
    return "cli" if room == "__main__" else room


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Every module named by an import, wherever it stands: in functions, for types only."""
    package = path.relative_to(PACKAGE.parent).parent.parts
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join(base + ([node.module] if node.module else []))
            if module == "infobus":  # `from infobus import errors` enters the room, not the hall
                for alias in node.names:
                    is_room = alias.name in (*ROOMS, "testing")
                    yield node.lineno, f"infobus.{alias.name}" if is_room else "infobus"
            else:
                yield node.lineno, module


def may_import(room: str, other: str) -> bool:
    if room in ("", other):
        return True
    if room == "testing":
        return other in (*ABOVE_BUS, "bus")  # the simulators run what ships
    if other == "":  # the public face stands on the bus, so it is for rooms beyond the bus
        return room not in (*ABOVE_BUS, "bus")
    if other == "testing":
        return room == "bench"  # it measures over the hosts that tests are made on
    if {room, other} <= SIBLINGS:
        return (room, other) in DRIVEN
    return ROOMS.index(other) < ROOMS.index(room)


class TestImportLaw:
    def test_every_module_stands_in_a_room(self):
        homes = ("", "testing", *ROOMS)
        assert not [path for path in MODULES if room_of(name_of(path)) not in homes]

    def test_rooms_import_only_rooms_above_them(self):
        broken = [
            f"{path.relative_to(ROOT)}:{line}: {room_of(name_of(path))} imports {module}"
            for path in MODULES
            for line, module in imports_of(path)
            if module.partition(".")[0] == "infobus"
            if not may_import(room_of(name_of(path)), room_of(module))
        ]
        assert not broken, "\n".join(broken)

    def test_pure_rooms_touch_no_world(self):
        broken = []
        for path in MODULES:
            room = room_of(name_of(path))
            if room not in PURE:
                continue
            forbidden = EFFECTS - ALLOWED_EFFECTS.get(room, set())
            broken += [
                f"{path.relative_to(ROOT)}:{line}: imports {module}"
                for line, module in imports_of(path)
                if module.partition(".")[0] in forbidden
            ]
            broken += [
                f"{path.relative_to(ROOT)}:{node.lineno}: calls {ast.unparse(node.func)}"
                for node in ast.walk(tree_of(path))
                if isinstance(node, ast.Call) and CLOCKS_AND_FILES.match(ast.unparse(node.func))
            ]
        assert not broken, "\n".join(broken)

    @pytest.mark.parametrize(
        ("room", "other", "allowed"),
        [
            ("objects", "subjects", True),
            ("subjects", "objects", False),
            ("engines", "protocols", True),
            ("protocols", "engines", False),
            ("stores", "engines", False),
            ("services", "protocols", True),
            ("services", "bus", False),
            ("bus", "", False),
            ("demo", "", True),
            ("testing", "engines", True),
            ("testing", "bus", True),
            ("testing", "pipeline", False),
            ("bench", "testing", True),
            ("bus", "testing", False),
            ("cli", "testing", False),
            ("", "bus", True),
        ],
    )
    def test_the_law_itself(self, room, other, allowed):
        assert may_import(room, other) == allowed

    def test_no_form_of_import_escapes(self, tmp_path, monkeypatch):
        monkeypatch.setitem(globals(), "PACKAGE", tmp_path / "infobus")
        module = tmp_path / "infobus" / "objects" / "codec.py"
        module.parent.mkdir(parents=True)
        module.write_text(
            "import infobus.bus.node\n"
            "from infobus import errors, connect\n"
            "from . import types\n"
            "from ..subjects import matches\n"
            "from .. import engines\n"
            "if TYPE_CHECKING:\n    from infobus.stores import Ledger\n"
            "def late():\n    import os.path\n"
        )
        assert [name for _, name in sorted(imports_of(module))] == [
            "infobus.bus.node",
            "infobus",
            "infobus.errors",
            "infobus.objects",
            "infobus.subjects",
            "infobus.engines",
            "infobus.stores",
            "os.path",
        ]


class TestPublicFace:
    def test_every_public_name_says_what_it_is(self):
        import infobus

        public = {name: getattr(infobus, name) for name in infobus.__all__}
        assert not [name for name, thing in public.items() if not is_documented(thing)]
        classes = {name: thing for name, thing in public.items() if inspect.isclass(thing)}
        assert not [
            f"{name}.{member}"
            for name, thing in classes.items()
            for member, value in vars(thing).items()
            if not member.startswith("_") and is_method(value)
            # An override inherits the text of what it overrides.
            if not inspect.getdoc(getattr(thing, member))
        ]

    def test_every_error_is_public(self):
        import infobus
        from infobus import errors

        defined = {name for name, thing in vars(errors).items() if is_error_of(errors, thing)}
        assert defined <= set(infobus.__all__)

    def test_what_the_documentation_calls_public_is(self):
        import infobus

        pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
        texts = [page.read_text("utf-8") for page in pages] + [*docstrings()]
        named = {name for text in texts for name in re.findall(r"\binfobus\.([A-Z]\w*)", text)}
        assert "DeadLetter" in named  # the search finds what is there
        assert named <= set(infobus.__all__)

    def test_the_public_names_are_there_and_no_others(self):
        import infobus

        assert infobus.__all__ == sorted(infobus.__all__)
        assert all(hasattr(infobus, name) for name in infobus.__all__)
        assert not hasattr(infobus, "DurableNonsense")

    @pytest.mark.world
    def test_importing_the_package_loads_only_what_every_program_needs(self):
        late = {"infobus.services", "infobus.stores", "infobus.bus.durable"}
        late |= {"infobus.bus.durable.dead_letters", "sqlite3"}
        late |= {"infobus.bus.aio", "infobus.bus.publish.transaction", "infobus.bus.qos_group"}
        late |= {"infobus.bus.quench", "infobus.protocols.frames.invocation"}
        late |= {"infobus.objects.printer", "infobus.protocols.frames.lane_upgrade"}
        assert not late & set(run_python("import sys, infobus; print(*sys.modules)").split())

    @pytest.mark.world
    def test_importing_the_package_loads_nothing_heavy(self):
        heavy = {
            "cryptography",
            "numpy",
            "pyspark",
            "sqlalchemy",
            "starlette",
            "rich",
            "typer",
            "zenoh",
        }
        code = "import sys, infobus; print(*{name.partition('.')[0] for name in sys.modules})"
        assert not heavy & set(run_python(code).split())

    @pytest.mark.world
    def test_the_first_example_of_the_readme_prints_what_it_says(self):
        readme = (ROOT / "README.md").read_text("utf-8")
        example = re.search(r"```python\n(.*?)```.*?```text\n(.*?)```", readme, re.DOTALL)
        assert example, "README.md has a python block, followed by a text block with its output"
        code, output = example.groups()
        assert run_python(code) == output


class TestFiles:
    def test_no_file_knows_the_machine_it_was_written_on(self):
        # One letter of each word is in brackets, so that this file does not find itself.
        telltale = re.compile(
            r"(?<![\w.~/*-])/(?:wor[k]|tm[p]|roo[t])(?![\w-])|/(?:hom[e]|op[t])/\w"
            r"|pypi\.or[g]/simple|python[h]osted|arti[f]actory"
            r"|index-ur[l]|find-link[s]|trusted-hos[t]"
        )
        found = [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
            for path in tracked_text_files()
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
            if telltale.search(line)
        ]
        assert not found, "\n".join(found)


def is_documented(thing: object) -> bool:
    if inspect.isclass(thing):
        # A dataclass without a docstring is given its signature for one.
        doc = vars(thing).get("__doc__")
        return bool(doc) and not doc.startswith(f"{thing.__name__}(")
    return not callable(thing) or bool(thing.__doc__)


def is_error_of(module: object, thing: object) -> bool:
    is_error = inspect.isclass(thing) and issubclass(thing, Exception)
    return is_error and inspect.getmodule(thing) is module


def docstrings() -> Iterator[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, kinds):
                yield ast.get_docstring(node) or ""


def is_method(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, classmethod | staticmethod | property)


def run_python(code: str) -> str:
    """Run `code` in a fresh interpreter that must end well, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=PACKAGE.parent,  # so that the package is found even where it is not installed
        env={**os.environ, "INFOBUS_BUS": f"tidy-{os.getpid()}"},  # heard by no other program
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tracked_text_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    binary = {".png", ".parquet", ".ico", ".woff2"}
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and path.suffix not in binary]
