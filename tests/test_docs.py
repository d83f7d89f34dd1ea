"""The documents against the program: every setting with its default, every metric, error code and command, no file that is not there.

Both sides are parsed; there is no list here to keep in step.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import NODEFAULT, Struct

from gateway import cli, errors
from gateway.metrics import METRICS
from gateway.settings import BackendSettings, PriceSettings, QualitySettings, RouteSettings, Settings, TraitSettings, load
from providers.errors import ProviderError
from providers.vendors import VENDORS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
SOURCES = [path for package in ("gateway", "providers", "local_engine") for path in (ROOT / package).rglob("*.py")]


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    """Heading of the second level -> what stands under it."""
    parts = re.split(r"^## (.+)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """Cells of every table row that begins with `code`."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# ---- settings
def shown(field: msgspec.structs.FieldInfo) -> str:
    """A default as the table shows it: as TOML writes it, `required`, or `none`."""
    if field.default is not NODEFAULT:
        value = field.default
    elif field.default_factory is not NODEFAULT:
        value = field.default_factory()
    else:
        return "required"
    return "none" if value is None else f"`{msgspec.json.encode(value).decode()}`"


def tables() -> dict[str, type[Struct]]:
    """Heading in docs/configuration.md -> the struct behind it."""
    found: dict[str, type[Struct]] = {"backends.price": PriceSettings, "backends.traits": TraitSettings, "routes.quality": QualitySettings}
    for field in msgspec.structs.fields(Settings):
        if isinstance(field.type, type) and issubclass(field.type, Struct):
            found[f"[{field.name}]"] = field.type
    return found | {"[[backends]]": BackendSettings, "[[routes]]": RouteSettings}


def test_every_table_of_the_settings_has_a_section() -> None:
    headings = sections(text_of(DOCS / "configuration.md"))
    assert set(tables()) == set(headings)
    assert {heading.strip("[]") for heading in headings if heading.startswith("[")} == {f.name for f in msgspec.structs.fields(Settings)}


@pytest.mark.parametrize("heading", sorted(tables()))
def test_every_setting_is_documented_with_its_default(heading: str) -> None:
    documented = {names_in(row[0])[0]: row[1] for row in rows(sections(text_of(DOCS / "configuration.md"))[heading])}
    assert documented == {field.name: shown(field) for field in msgspec.structs.fields(tables()[heading])}


def test_every_vendor_is_documented() -> None:
    backends = sections(text_of(DOCS / "configuration.md"))["[[backends]]"]
    cell = next(row[2] for row in rows(backends) if row[0] == "`vendor`")
    assert set(names_in(cell)) == set(VENDORS)


def test_every_vendor_has_a_line_with_its_address_among_the_languages() -> None:
    table = {name: row for row in rows(sections(text_of(DOCS / "languages.md"))["Vendors"]) for name in names_in(row[0])}
    documented = {name for name in table if name in VENDORS}
    assert documented == set(VENDORS)
    for name, row in VENDORS.items():
        if row.base_url:
            assert names_in(table[name][1]) == [row.base_url]


def test_environment_names_in_the_documents_are_settings() -> None:
    for page in PAGES:
        for name in set(re.findall(r"TOLLWAY_[A-Z0-9]+__[A-Z0-9_]+", text_of(page))):
            parts = name.removeprefix("TOLLWAY_").lower().split("__")
            if parts == ["section", "key"]:
                continue
            key = parts[-1] if parts[0] not in ("backends", "routes") else parts[2]
            struct = tables().get(f"[{parts[0]}]") or tables()[f"[[{parts[0]}]]"]
            assert key in {field.name for field in msgspec.structs.fields(struct)}, f"{page.name}: {name}"


def toml_blocks() -> Iterator[Any]:
    for page in PAGES:
        for number, block in enumerate(re.findall(r"^```toml\n(.*?)^```", text_of(page), re.M | re.S)):
            yield pytest.param(block, id=f"{page.name}-{number}")


@pytest.mark.parametrize("block", list(toml_blocks()))
def test_configuration_examples_load(tmp_path: Path, block: str) -> None:
    path = tmp_path / "tollway.toml"
    path.write_text(block, encoding="utf-8")
    assert load(path, {}).routes


# ---- metrics
def test_every_metric_is_documented_with_its_labels() -> None:
    section = sections(text_of(DOCS / "operations.md"))["Metrics"]
    documented = {names_in(row[0])[0]: row[1] for row in rows(section) if row[0].startswith(("`tollway_", "`gen_ai_"))}
    assert documented == {name: ", ".join(labels) for name, (_kind, _help, labels) in METRICS.items()}


def test_every_alert_is_documented() -> None:
    alerts = set(re.findall(r"^ +- alert: (\w+)$", (ROOT / "dashboards/prometheus/alerts.yml").read_text(encoding="utf-8"), re.M))
    section = sections(text_of(DOCS / "operations.md"))["Metrics"]
    documented = {
        name.strip() for line in section.splitlines() if re.match(r"\| [A-Z]\w+[,|\s]", line) for name in line.split("|")[1].split(",")
    }
    assert alerts
    assert documented == alerts


# ---- errors
def chosen(node: ast.expr) -> set[str]:
    """The texts an expression may give: a literal, or either side of a conditional one."""
    if isinstance(node, ast.IfExp):
        return chosen(node.body) | chosen(node.orelse)
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def literal_codes(path: Path) -> set[str]:
    """Codes given by keyword, as a default of a parameter `code`, or assigned to a name `code`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text_of(path))):
        if (isinstance(node, ast.keyword) and node.arg == "code") or (
            isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == "code" for target in node.targets)
        ):
            found |= chosen(node.value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
                if argument.arg == "code" and default is not None:
                    found |= chosen(default)
    return found


def subclasses(kind: type) -> Iterator[type]:
    yield kind
    for below in kind.__subclasses__():
        yield from subclasses(below)


def codes() -> set[str]:
    found = {kind.code for root in (errors.GatewayError, ProviderError) for kind in subclasses(root)}  # type: ignore[attr-defined]
    for path in SOURCES:
        if path.parts[-2] != "local_engine" and "local_engine" not in path.parts:
            found |= literal_codes(path)
    return {code for code in found if code}


def test_codes_are_found() -> None:
    assert {"invalid_api_key", "draining", "overloaded", "upstream_cut", "invalid_value"} <= codes()


def test_every_error_code_is_documented_once() -> None:
    documented = [names_in(row[0])[0] for row in rows(text_of(DOCS / "errors.md"))]
    assert sorted(documented) == sorted(codes())


def test_statuses_of_the_errors_are_as_documented() -> None:
    documented = {names_in(row[0])[0]: row[1] for row in rows(text_of(DOCS / "errors.md"))}
    kinds: list[Any] = [kind for root in (errors.GatewayError, ProviderError) for kind in subclasses(root)]
    by_code: dict[str, set[int]] = {}
    for kind in kinds:
        if kind.code:
            by_code.setdefault(kind.code, set()).add(kind.status)
    assert {code: documented[code] for code, statuses in by_code.items() if int(documented[code]) not in statuses} == {}


# ---- commands and headers
def commands() -> set[str]:
    """Names of the program's commands, without loading them."""
    return {name for name in cli.app if not name.startswith("-")}


def test_commands_are_found() -> None:
    assert "serve" in commands()


def test_every_command_is_in_the_readme() -> None:
    table = sections(text_of(ROOT / "README.md"))["Commands"]
    named = {name.split()[1] for row in rows(table) for name in names_in(row[0])}
    assert named == commands()


def test_commands_in_the_documents_exist() -> None:
    for page in PAGES:
        text = text_of(page)
        code = [*re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S), *re.findall(r"`([^`\n]+)`", text)]
        for part in code:
            for name in re.findall(r"(?:^|[\s(/])tollway ([a-z]+)", part):
                assert name in commands(), f"{page.name}: tollway {name}"


def test_response_headers_in_the_documents_exist() -> None:
    source = "\n".join(text_of(path) for path in SOURCES)
    for page in PAGES:
        for name in set(re.findall(r"\bx-tollway-[a-z-]+", text_of(page))):
            assert name in source, f"{page.name}: {name}"


# ---- links and files
def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        path = page.parent / target if target else page
        assert path.exists(), link
        assert not anchor or anchor in anchors(path), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    """Paths with a slash and an ending, in backticks or plain: from the root or from one of the packages."""
    made_at_run_time = {"./tollway.toml", ".tollway/tollway.db"}
    for name in set(re.findall(r"(?<![\w/:.$-])[\w.-]+(?:/[\w.-]+)*/[\w-]+\.(?:py|md|toml|ya?ml|json|lock|sh)\b", text_of(page))):
        if name not in made_at_run_time:
            assert any((ROOT / folder / name).exists() for folder in ("", "gateway", "providers", "local_engine")), name
    for name in set(re.findall(r"`([\w-]+\.(?:py|ya?ml))`", text_of(page))):
        assert any(path.name == name for path in [*SOURCES, *ROOT.glob("*"), *(ROOT / "dashboards").rglob("*")]), name


def test_folders_of_the_architecture_exist() -> None:
    named = re.findall(r"`(\w+/)`", text_of(DOCS / "architecture.md"))
    assert named
    for name in named:
        assert any((ROOT / folder / name).is_dir() for folder in ("", "gateway", "providers", "local_engine")), name


def test_decisions_are_numbered() -> None:
    pages = sorted((DOCS / "decisions").glob("*.md"))
    assert [page.name[:4] for page in pages] == [f"{number:04}" for number in range(1, len(pages) + 1)]
    for page in pages:
        text = text_of(page)
        assert text.startswith(f"# {page.name[:4]} ")
        for part in ("**Decision.**", "**Why.**", "**Consequences.**"):
            assert part in text, f"{page.name}: {part}"


def test_the_architecture_stays_short() -> None:
    text = text_of(DOCS / "architecture.md")
    assert len(text.split()) <= 1000
    assert len(text.splitlines()) <= 120
