"""The plan of the house: `ls` leads to any behaviour, and a file can be read in one sitting."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "infobus"
MODULES = sorted(PACKAGE.rglob("*.py"))

FOLDER_COUNT_MAX = 15
WIDE_FOLDERS = {"cli", "objects", "repository"}  # one module per command, or one idea throughout
LINE_COUNT_MAX = 800
FUNCTION_LINE_COUNT_MAX = 60

# Words in -ing that name a thing, not an activity.
NOUNS = set("matching pruning renaming routing spelling testing".split())

# Inside a room, a folder imports only folders that stand before it on its line.
FOLDERS = {
    "bench": (
        "common matching repository pubsub guaranteed qos calls pipeline hosts membership "
        "routers sites"
    ),
    "bus": "rights deliver runtime publish durable membership tags statistics border security",
    "demo": "floor newsroom city",
    "engines": "memory zenoh attached sealed routed",
    "filters": "language matching algebra pushdown",
    "pipeline": "source sink jobs runner",
    "protocols": (
        "qos frames security interest reliable guaranteed initial_state invocation membership tags "
        "routing"
    ),
    "router": "quality",
    "stores": "sqlite ledger journal",
    "tdl": "classes library forms",
    "testing": "conformance hosts simulation",
}
# These are called late, and import only then what they hand on to: `Filter.to_sql` and `to_spark`,
# and the writers of the one format by which Spark knows the bus.
LATE = {("filters/language/filter.py", "pushdown"), ("pipeline/source/source.py", "sink")}
# Folders of one line that do not know each other all the same.
STRANGERS = {("filters", "matching", "algebra"), ("stores", "ledger", "journal")}
STRANGERS |= {("engines", "memory", "zenoh"), ("demo", "newsroom", "city")}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def place_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_a_folder_can_be_overlooked():
    counts = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    crowded = {
        place_of(folder): count
        for folder, count in counts.items()
        if count > FOLDER_COUNT_MAX and place_of(folder) not in WIDE_FOLDERS
    }
    assert not crowded


def test_a_module_can_be_read_in_one_sitting():
    lengths = {place_of(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert not {place: count for place, count in lengths.items() if count > LINE_COUNT_MAX}


def test_a_function_can_be_read_without_scrolling():
    assert not [
        f"{place_of(path)}:{function.lineno} {function.name}"
        for path in MODULES
        for function in functions_of(path)
        if (function.end_lineno or 0) - function.lineno >= FUNCTION_LINE_COUNT_MAX
    ]


def test_modules_are_named_after_things():
    gerunds = [path for path in MODULES if re.fullmatch(r"\w+ing", path.stem)]
    assert not [place_of(path) for path in gerunds if path.stem not in NOUNS]


def test_no_two_public_classes_have_one_name():
    places = defaultdict(list)
    for path in MODULES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(place_of(path))
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_private_names_stay_in_their_file():
    """Also those of a base class: one class is not spread over several files."""
    foreign = [
        f"{place_of(path)}:{node.lineno} {ast.unparse(node)}"
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute)
        and re.match(r"_[a-z]", node.attr)
        and node.attr not in names_made_in(path) | OUTSIDE
    ]
    assert not foreign, "\n".join(foreign)


# Names that Python and its libraries spell with an underscore, although they are for use.
OUTSIDE = {"_asdict", "_current_frames", "_exit", "_getframe", "_replace"}
OUTSIDE |= {"_fields", "_field_defaults"}  # of named tuples
# pyspark has no public way to Java.
OUTSIDE |= {"_jvm"}


@cache
def names_made_in(path: Path) -> frozenset[str]:
    """The names that classes of a module define, and the attributes that it assigns."""
    names = set()
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Attribute(ctx=ast.Store()):
                names.add(node.attr)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.alias():
                names.add(node.asname or node.name)
    return frozenset(names)


def test_nothing_is_carried_or_counted_that_nobody_reads():
    read: set[str] = set()
    unpacked: set[str] = set()  # classes whose fields a pattern reads by their places
    fields: dict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        room = place_of(path).split("/")[0]
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
            elif isinstance(node, ast.MatchClass):
                read.update(node.kwd_attrs)
                if node.patterns:
                    unpacked.add(ast.unparse(node.cls).rpartition(".")[2])
            elif isinstance(node, ast.ClassDef) and (
                room in ("protocols", "stores") or node.name == "Counters"
            ):
                of_class = (one.target for one in node.body if isinstance(one, ast.AnnAssign))
                fields[node.name] |= set(map(ast.unparse, of_class))
    assert sum(map(len, fields.values())) > 300
    dead = {name: some - read for name, some in fields.items() if name not in unpacked}
    assert {name: some for name, some in dead.items() if some} == {}


def test_every_folder_of_a_room_has_its_place():
    folders = defaultdict(set)
    for path in MODULES:
        room, *below = path.relative_to(PACKAGE).parts[:-1] or ("",)
        folders[room].update(below[:1])
    assert {room: found for room, found in folders.items() if found} == {
        room: set(line.split()) for room, line in FOLDERS.items()
    }


def test_folders_of_a_room_import_in_one_direction():
    broken = []
    for path in MODULES:
        room, folder = place_in_room(path.relative_to(PACKAGE).parts[:-1])
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("infobus."):
                names = (node.module or "").split(".")[1:]
                names += [alias.name for alias in node.names[:1]] if len(names) == 1 else []
                other_room, other = place_in_room(tuple(names))
                is_late = (place_of(path), other) in LATE
                if room == other_room and not (is_late or may_import(room, folder, other)):
                    broken.append(f"{place_of(path)}:{node.lineno} imports {node.module}")
    assert not broken, "\n".join(broken)


def place_in_room(parts: tuple[str, ...]) -> tuple[str, str]:
    """Room and folder; the folder is empty for what stands in the room itself."""
    room = parts[0] if parts else ""
    folder = parts[1] if len(parts) > 1 else ""
    return room, folder if folder in FOLDERS.get(room, "").split() else ""


def may_import(room: str, folder: str, other: str) -> bool:
    if not folder or not other or folder == other:
        return True
    order = FOLDERS[room].split()
    pair = (room, *sorted((folder, other), key=order.index))
    return order.index(other) < order.index(folder) and pair not in STRANGERS
