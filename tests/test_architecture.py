"""The house rules, checked on the source itself: sizes, module docstrings, honest error handling, who may import whom, who has tests.

An exception needs an entry in a table here, with its reason; an entry that is no longer needed is an error too.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("gateway", "providers", "local_engine", "migrations")
MAX_FILE_LINES = 499
MAX_FUNCTION_LINES = 69
MAX_PARAMETERS = 6

# what may break a limit, and why
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
MAX_DIALECT_LINES = 900
DIALECT_FILES = {"__init__", "answers", "content", "encode", "errors", "fields", "parameters", "requests", "wire"}
MANY_PARAMETERS: dict[str, str] = {}
WITHOUT_DOCSTRING = {"local_engine/__init__.py": "empty, so that importing the client imports nothing else"}
# modules whose tests are elsewhere: where, and why
WITHOUT_TEST = {
    "gateway/api/count_tokens.py": ("e2e/test_messages.py", "an endpoint that counts instead of calling"),
    "gateway/api/endpoint.py": ("e2e/test_chat.py", "means something only between a server and a client"),
    "gateway/api/openapi.py": ("e2e/test_chat.py", "compared with the routes of the running app"),
    "gateway/api/plain.py": ("e2e/test_chat.py", "asks a part and encodes; run over real sockets"),
    "gateway/attempts.py": ("e2e/test_chat.py", "failover, cuts and disconnects need real upstreams"),
    "gateway/db/columns.py": ("migrations/test_0001_first.py", "declarations, compared with what the migrations make"),
    "gateway/db/rollup_tables.py": ("migrations/test_0001_first.py", "declarations, compared with what the migrations make"),
    "gateway/errors.py": ("test_docs.py", "declarations, compared with the documents"),
    "gateway/limiter.py": ("e2e/test_limits.py", "joins a request to the counts; what it says is what a client reads"),
    "gateway/parts.py": ("e2e/test_serve.py", "references, and the readiness that a server tells"),
    "gateway/pipeline.py": ("e2e/test_chat.py", "the order of the steps, from request to ledger row"),
    "gateway/settings_text.py": ("test_settings.py", "half of settings.load, which is what is used and tested"),
    "gateway/views/explorer_counts.py": ("views/test_explorer.py", "a part of a listing, which is compared with a reference whole"),
    "gateway/views/explorer_filter.py": ("views/test_explorer.py", "a part of a listing, which is compared with a reference whole"),
    "gateway/views/explorer_rows.py": ("views/test_explorer.py", "a part of a listing, which is compared with a reference whole"),
    "local_engine/__main__.py": ("local_engine/test_offline.py", "hands over to server, offline use and fetch"),
    "local_engine/errors.py": ("local_engine/test_wire.py", "declarations, sent over the wire and back"),
    "local_engine/layers/step.py": ("local_engine/layers/test_compiled.py", "compiled as one, and computes what its caller lays out"),
    "local_engine/model_runner.py": ("local_engine/test_engine.py", "tensors of one step, equal to those of transformers"),
    "local_engine/sequence.py": ("local_engine/test_scheduler.py", "the state of a sequence; decides nothing"),
    "providers/dialects/__init__.py": ("providers/dialects/test_crossing.py", "the table of languages, and the step between two"),
    "providers/errors.py": ("providers/test_http.py", "declarations"),
    "providers/types.py": ("providers/dialects/test_openai_chat_encode.py", "declarations"),
}
LOGGING = {"debug", "info", "warning", "error", "exception", "critical", "log", "fault"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def suites() -> list[Path]:
    return sorted((ROOT / "tests").rglob("test_*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions(path: Path) -> Iterator[tuple[str, Function]]:
    """Every function of a file with the name an allow-list would use: "gateway/app.py:build"."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name_of(path)}:{node.name}", node


def imports(path: Path) -> set[str]:
    """Every module that a file imports anywhere, type-checking blocks included."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def stay_within(found: dict[str, int], limit: int, excused: dict[str, str]) -> None:
    """No number above the limit but the excused ones, and no excuse without need."""
    over = {name: number for name, number in found.items() if number > limit}
    assert {name: number for name, number in over.items() if name not in excused} == {}
    assert [name for name in excused if name not in over] == []


def test_sources_are_found() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in sources()} == set(PACKAGES)


def test_files_are_short() -> None:
    every = [*sources(), *(ROOT / "tests").rglob("*.py")]
    stay_within({name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in every}, MAX_FILE_LINES, LONG_FILES)


def test_functions_are_short() -> None:
    lengths: dict[str, int] = {}
    for path in sources():
        for name, node in functions(path):
            assert node.end_lineno is not None
            lengths[name] = max(lengths.get(name, 0), node.end_lineno - node.lineno + 1)
    stay_within(lengths, MAX_FUNCTION_LINES, LONG_FUNCTIONS)


def test_the_three_great_languages_read_alike_and_are_short() -> None:
    for name in ("openai_chat", "openai_responses", "anthropic_messages"):
        files = sorted((ROOT / "providers" / "dialects" / name).glob("*.py"))
        assert {path.stem for path in files} == DIALECT_FILES, name
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
        assert lines <= MAX_DIALECT_LINES, (name, lines)


def parameters(node: Function) -> int:
    """How many a caller must think of. Keyword-only ones of a constructor are the fields of a value: they don't count."""
    arguments = node.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    by_keyword = 0 if node.name == "__init__" else len(arguments.kwonlyargs)
    return len(names) + by_keyword


def test_functions_take_few_parameters() -> None:
    counts = {name: parameters(node) for path in sources() for name, node in functions(path)}
    stay_within(counts, MAX_PARAMETERS, MANY_PARAMETERS)


def test_every_module_says_what_it_does() -> None:
    bare = {name_of(path) for path in sources() if not ast.get_docstring(tree_of(path))}
    assert bare == set(WITHOUT_DOCSTRING)


def is_broad(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in kinds)


def speaks(handler: ast.ExceptHandler) -> bool:
    """Logs, counts or raises: whatever was caught does not vanish."""
    for node in ast.walk(ast.Module(handler.body, [])):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOGGING:
            return True
    return False


def silent_handlers(tree: ast.AST) -> list[int]:
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and is_broad(node) and not speaks(node)]


@pytest.mark.parametrize(
    ("code", "silent"),
    [
        ("try:\n    f()\nexcept Exception:\n    pass", True),
        ("try:\n    f()\nexcept:\n    x = 1", True),
        ("try:\n    f()\nexcept (OSError, BaseException):\n    pass", True),
        ("try:\n    f()\nexcept Exception as error:\n    log.error('broke', error=error)", False),
        ("try:\n    f()\nexcept Exception:\n    raise Other from None", False),
        ("try:\n    f()\nexcept OSError:\n    pass", False),
    ],
)
def test_silence_is_recognised(code: str, silent: bool) -> None:
    assert bool(silent_handlers(ast.parse(code))) is silent


def test_no_broad_except_is_silent() -> None:
    found = [f"{name_of(path)}:{line}" for path in sources() for line in silent_handlers(tree_of(path))]
    assert found == []


def opens_to_write(tree: ast.AST) -> list[int]:
    """Lines where a connection is opened on an engine that was not passed through `reading`: on SQLite each takes the one write lock."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "connect"
        if getattr(node.func.value, "attr", getattr(node.func.value, "id", "")) in ("engine", "_engine")
    ]


def test_who_reads_does_not_queue_for_the_write_lock() -> None:
    """Who writes says `engine.begin()`. Three keep an engine that reads, or write their transactions as steps."""
    allowed = {"gateway/auth.py", "gateway/snapshot.py", "gateway/db/session.py"}
    assert [name_of(path) for path in sources() if name_of(path) not in allowed and opens_to_write(tree_of(path))] == []
    assert all(opens_to_write(tree_of(ROOT / name)) for name in allowed)


def under(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def test_packages_point_in_one_direction() -> None:
    forbidden = {
        "gateway": ("local_engine", "migrations"),
        "providers": ("gateway", "migrations"),
        "local_engine": ("gateway", "providers", "migrations"),
    }
    wrong = [
        f"{name_of(path)} imports {module}"
        for path in sources()
        for module in sorted(imports(path))
        for package in forbidden.get(path.relative_to(ROOT).parts[0], ())
        if under(module, package)
    ]
    assert wrong == []


def test_one_file_knows_the_engine() -> None:
    knowing = {name_of(path) for path in (ROOT / "providers").rglob("*.py") if any(under(name, "local_engine") for name in imports(path))}
    assert knowing == {"providers/local.py"}


def test_migrations_know_the_tables_alone() -> None:
    allowed = {"gateway", "gateway.db"}
    of_tables = ("gateway.db.columns", "gateway.db.rollup_tables", "gateway.db.tables")
    wrong = [
        f"{name_of(path)} imports {module}"
        for path in (ROOT / "migrations").rglob("*.py")
        for module in sorted(imports(path))
        if module.split(".")[0] in ("gateway", "providers", "local_engine")
        if module not in allowed and not any(under(module, one) for one in of_tables)
    ]
    assert wrong == []


def closure(start: Path) -> set[Path]:
    """A file and those of our own modules that it imports, directly or not."""
    seen, waiting = set(), [start]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for module in imports(path):
            for candidate in (ROOT / f"{module.replace('.', '/')}.py", ROOT / module.replace(".", "/") / "__init__.py"):
                if candidate.is_file():
                    waiting.append(candidate)
    return seen


def test_the_engines_client_needs_no_library_but_msgspec() -> None:
    roots = {module.split(".")[0] for path in closure(ROOT / "local_engine/client.py") for module in imports(path)}
    assert roots - sys.stdlib_module_names - {"local_engine"} == {"msgspec"}


HEAVY = {"torch", "transformers", "tokenizers", "numpy", "alembic", "genai_prices", "opentelemetry.exporter.otlp", "requests"}


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("gateway.app", HEAVY),
        ("gateway.worker", HEAVY),
        ("gateway.supervisor", HEAVY | {"rich", "structlog", "litestar", "sqlalchemy", "granian", "httpx", "aiohttp", "redis"}),
        ("local_engine.client", HEAVY | {"rich", "litestar", "sqlalchemy", "httpx"}),
    ],
)
def test_processes_start_light(module: str, unwanted: set[str]) -> None:
    code = f"import sys, {module}; print(*sorted({unwanted!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, "", "")


def has_tests(path: Path, names: set[str]) -> bool:
    """tests/<package>/test_<module>.py; a package's __init__ is tested under the package's name."""
    stem = path.parent.name if path.name == "__init__.py" else path.stem
    return f"test_{stem}.py" in names or f"test_{path.parent.name}_{stem}.py" in names


def has_code(path: Path) -> bool:
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree_of(path)))


def test_every_module_has_its_tests() -> None:
    names = {path.name for path in suites()}
    without = {name_of(path) for path in sources() if has_code(path) and not has_tests(path, names)}
    assert sorted(without - set(WITHOUT_TEST)) == []
    assert sorted(set(WITHOUT_TEST) - without) == []  # has its own tests by now, or is gone: take it off the list
    assert [where for where, _why in WITHOUT_TEST.values() if not (ROOT / "tests" / where).exists()] == []


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def can_fail(tree: ast.AST, helpers: set[str]) -> bool:
    """Has an assertion, raises by itself, or calls what does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        if isinstance(node, ast.Call) and called(node) in {"raises", "warns", "fail"} | helpers:
            return True
    return False


def functions_in_tests() -> list[tuple[Path, Function]]:
    return [
        (path, node)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_every_test_can_fail() -> None:
    """A test without an assertion, in itself or in a helper, fails by an accident at best."""
    every = functions_in_tests()
    helpers: set[str] = set()
    while True:
        more = {node.name for _path, node in every if not node.name.startswith("test_") and can_fail(node, helpers)} - helpers
        if not more:
            break
        helpers |= more
    idle = [f"{name_of(path)}:{node.name}" for path, node in every if node.name.startswith("test_") and not can_fail(node, helpers)]
    assert idle == []


def test_the_wheel_holds_every_package_and_its_data() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    assert set(wheel["packages"]) == {*PACKAGES, "dashboards"}
    assert "exclude" not in wheel
    data_files = ("prometheus/prometheus.yml", "prometheus/alerts.yml", "grafana", "console/static", "console/templates")
    for data in (f"dashboards/{name}" for name in data_files):
        assert (ROOT / data).exists(), data
    assert list((ROOT / "dashboards").rglob("*.py")) == []
