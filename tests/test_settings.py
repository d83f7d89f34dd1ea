"""Loading settings: every mistake is named with its key, nothing is read that is not a setting, what is published is what is loaded."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway import settings as module
from gateway.settings import ConfigError, Settings, check_vendors, load

HOSTED = """
[[backends]]
name = "openai-mini"
vendor = "openai"
model = "gpt-4o-mini"
api_key = "env:OPENAI_API_KEY"

[[routes]]
name = "assistant"
backends = ["openai-mini"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "tollway.toml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(written(folder, text), environ)
    return str(caught.value)


def test_nothing_configured_serves_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = load(None, {})
    local = importlib.util.find_spec("torch") is not None
    assert [backend.vendor for backend in found.backends] == ["local" if local else "scripted"]
    assert found.backends[0].price is not None
    assert [(route.name, route.backends) for route in found.routes] == [("assistant", (found.backends[0].name,))]


def test_without_the_local_extra_a_scripted_backend_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert [backend.vendor for backend in load(None, {}).backends] == ["scripted"]


def test_the_file_of_the_working_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, HOSTED)
    monkeypatch.chdir(tmp_path)
    assert load(None, {}).backends[0].name == "openai-mini"


def test_a_file_that_was_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        load(tmp_path / "none.toml", {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[server]\nprot = 1", 'server.prot: unknown setting. Did you mean "port"?'),
        ("[sever]\nport = 1", 'sever: unknown setting. Did you mean "server"?'),
        ('[[backends]]\nname = "x"\nmodle = "y"', 'backends.x.modle: unknown setting. Did you mean "model"?'),
        ('[[backends]]\nname = "x"\nvendor = "openai"\nmodel = "m"\nprice = { imput = "1" }', "backends.x.price.imput: unknown setting."),
        ('[server]\nport = "4000"', "server.port: expected int, got str."),
        ("[server]\nport = 70000", "server.port: expected int <= 65535."),
        ("[server]\nworkers = 0", "server.workers: expected int >= 1."),
        ("[server]\nworkers = true", "server.workers: expected int, got bool."),
        ("[server]\nserver = 'hypercorn'", "server.server: invalid enum value 'hypercorn'."),
        ("[server]\nover_budget_status = 500", "server.over_budget_status: invalid enum value 500."),
        ("[money]\ntick_s = nan", "money.tick_s: expected float > 0.0."),
        ("[money]\ntick_s = inf", "money.tick_s: expected float <= 604800.0."),
        ("[money]\nqueue_rows = 10000000", "money.queue_rows: expected int <= 1000000."),
        ("server = 3", "server: expected object, got int."),
        ("port = ", "is not TOML"),
        ("backends = 3", "backends: expected array, got int."),
        ('[[backends]]\nvendor = "openai"', "backends[0].name: is required."),
        ('[[routes]]\nname = "r"\nbackends = "x"', "routes.r.backends: expected array, got str."),
    ],
)
def test_a_mistake_names_its_key(tmp_path: Path, text: str, says: str) -> None:
    assert says in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("price = { input = 0.15, output = 0.6 }", 'Write money as a string of decimal digits: "0.15".'),
        ('price = { input = "-1", output = "1" }', "price.input"),
        ('price = { input = "1" }', "price.output: is required."),
        ("hourly_usd = 0.4", "backends.openai-mini.hourly_usd: expected str | null, got float. Write money as a string"),
        ('base_url = "ftp://x"', "backends.openai-mini.base_url: must begin with http"),
        ('known_as = "a\\u202eb"', "backends.openai-mini.known_as: use printable characters alone."),
        ('script = "x"', 'backends.openai-mini.script: is for backends of the vendor "scripted" only.'),
    ],
)
def test_a_mistake_in_a_backend_names_its_key(tmp_path: Path, change: str, says: str) -> None:
    assert says in refusal(tmp_path, HOSTED.replace("\n\n[[routes]]", f"\n{change}\n\n[[routes]]"))


def test_a_mistake_in_the_second_row_says_which(tmp_path: Path) -> None:
    text = HOSTED + '\n[[routes]]\nname = "b"\nbackends = ["openai-mini"]\nmax_attempts = 0\n'
    assert refusal(tmp_path, text) == "routes.b.max_attempts: expected int >= 1."


def test_a_name_that_cannot_be_printed_is_refused_in_characters_that_can(tmp_path: Path) -> None:
    text = HOSTED + '\n[[routes]]\nname = "b\\u0000"\nbackends = ["openai-mini"]\n'
    assert refusal(tmp_path, text) == "routes.name: 'b\\x00' has characters that cannot be printed."


def test_a_literal_key_is_refused_and_not_repeated(tmp_path: Path) -> None:
    said = refusal(tmp_path, HOSTED.replace("env:OPENAI_API_KEY", "sk-live-12345"))
    assert said == "backends.openai-mini.api_key: must be a reference, env:NAME or file:PATH, never the secret itself."
    assert refusal(tmp_path, '[server]\nsecret = ["hunter2"]').startswith("server.secret[0]: must be a reference")


def test_references_between_tables(tmp_path: Path) -> None:
    assert '"openai-mini" is named twice' in refusal(tmp_path, HOSTED + HOSTED)
    other = HOSTED.replace('["openai-mini"]', '["openai-mni"]')
    assert refusal(tmp_path, other) == 'routes.assistant.backends: "openai-mni" is not a backend. Did you mean "openai-mini"?'
    assert "name at least one backend" in refusal(tmp_path, HOSTED.replace('["openai-mini"]', "[]"))
    assert "is named twice" in refusal(tmp_path, HOSTED.replace('["openai-mini"]', '["openai-mini", "openai-mini"]'))


def test_unknown_vendor(tmp_path: Path) -> None:
    found = load(written(tmp_path, HOSTED), {})
    check_vendors(found.backends, {"openai": 1})
    with pytest.raises(ConfigError, match=r'backends.openai-mini.vendor: "openai" is unknown. Did you mean "openai-compatible"'):
        check_vendors(found.backends, {"openai-compatible": 1})


def test_the_environment_overrides_the_file_with_its_types(tmp_path: Path) -> None:
    found = load(
        written(tmp_path, "[server]\nport = 1\n" + HOSTED),
        {
            "TOLLWAY_SERVER__PORT": "4001",
            "TOLLWAY_SERVER__SECRET": "env:A, file:/b",
            "TOLLWAY_MONEY__TICK_S": "0.5",
            "TOLLWAY_CACHE__ENABLED": "false",
            "TOLLWAY_BACKENDS__OPENAI_MINI__BASE_URL": "http://127.0.0.1:9",
            "TOLLWAY_BACKENDS__OPENAI_MINI__PRICE__INPUT": "0.15",
            "TOLLWAY_BACKENDS__OPENAI_MINI__PRICE__OUTPUT": "0.60",
            "TOLLWAY_BACKENDS__OPENAI_MINI__LABELS": "zone=eu,kind=cheap",
            "TOLLWAY_ROUTES__ASSISTANT__TTFT_MS": "1500",
        },
    )
    backend = found.backends[0]
    assert (found.server.port, found.server.secret, found.money.tick_s, found.cache.enabled) == (4001, ("env:A", "file:/b"), 0.5, False)
    assert backend.base_url == "http://127.0.0.1:9"
    assert backend.price is not None and (backend.price.input, backend.price.output) == ("0.15", "0.60")
    assert backend.labels == {"zone": "eu", "kind": "cheap"}
    assert found.routes[0].ttft_ms == 1500


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("TOLLWAY_SERVER__PROT", "1", 'TOLLWAY_SERVER__PROT: unknown setting. Did you mean "port"?'),
        ("TOLLWAY_SEVER__PORT", "1", 'TOLLWAY_SEVER__PORT: unknown setting. Did you mean "server"?'),
        ("TOLLWAY_SERVER__PORT", "x", "TOLLWAY_SERVER__PORT: expected int, got str, not 'x'."),
        ("TOLLWAY_SERVER__PORT__X", "1", "TOLLWAY_SERVER__PORT__X: server.port is a single value."),
        ("TOLLWAY_BACKENDS__OPENAI_MNI__MODEL", "x", 'Did you mean "openai_mini"?'),
        ("TOLLWAY_BACKENDS__OPENAI_MINI", "x", "names a table; add one of its keys"),
        ("TOLLWAY_BACKENDS__OPENAI_MINI__API_KEY", "sk-1", "must be a reference"),
    ],
)
def test_a_mistake_in_the_environment(tmp_path: Path, name: str, value: str, says: str) -> None:
    assert says in refusal(tmp_path, HOSTED, **{name: value})


def test_names_without_two_underscores_are_not_settings(tmp_path: Path) -> None:
    path = written(tmp_path, HOSTED)
    assert load(path, {"TOLLWAY_RECORDINGS": "/x", "TOLLWAY_PORT": "x", "OTHER__X": "1"}) == load(path, {})


def test_where_models_lie(tmp_path: Path) -> None:
    path = written(tmp_path, HOSTED)
    assert load(path, {}).storage.models_path == Path(".tollway/models")
    assert load(path, {"TOLLWAY_MODELS": "/m"}).storage.models_path == Path("/m")
    assert load(path, {"TOLLWAY_MODELS": "/m", "TOLLWAY_STORAGE__MODELS_DIR": "/n"}).storage.models_path == Path("/n")


def test_a_socket_path_that_the_kernel_would_cut(tmp_path: Path) -> None:
    text = HOSTED.replace('"openai"', '"local"')
    assert "choose a shorter folder" in refusal(tmp_path, text, TOLLWAY_STORAGE__STATE_DIR="/tmp/" + "x" * 120)


def test_every_maximum_is_a_number(tmp_path: Path) -> None:
    """Nothing in the sections is unbounded: each int and float has a range, so that a typing slip cannot ask for the impossible."""
    import msgspec.inspect

    shape = msgspec.inspect.type_info(Settings)
    assert isinstance(shape, msgspec.inspect.StructType)
    for section in shape.fields:
        if isinstance(section.type, msgspec.inspect.StructType):
            for item in section.type.fields:
                if isinstance(item.type, msgspec.inspect.IntType | msgspec.inspect.FloatType):
                    assert item.type.le is not None, f"{section.name}.{item.name}"


def test_only_the_standard_library_and_msgspec() -> None:
    code = "import sys, gateway.settings; print(sorted({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(module.__file__).parents[1])}
    out = subprocess.run([sys.executable, "-S", "-c", _with_site(code)], capture_output=True, text=True, check=True, env=environ)
    assert set(eval(out.stdout)) <= {"gateway", "msgspec", "typing_extensions", "__main__"}


def _with_site(code: str) -> str:
    """-S skips the .pth files of site-packages, whose imports are not ours; the folder itself is put back on the path."""
    import msgspec

    return f"import sys; sys.path.append({str(Path(msgspec.__file__).parents[1])!r}); {code}"


@pytest.mark.parametrize(
    ("alerts", "says"),
    [
        ('webhook_url = "http://hooks"', "alerts.webhook_secret: is needed"),
        ('webhook_url = "hooks.example"\nwebhook_secret = "env:S"', "alerts.webhook_url: must begin with http:// or https://"),
        ('webhook_url = "http://hooks"\nwebhook_secret = "geheim"', "alerts.webhook_secret: must be a reference"),
        ("attempts = 0", "alerts.attempts"),
    ],
)
def test_where_alerts_go(tmp_path: Path, alerts: str, says: str) -> None:
    assert says in refusal(tmp_path, f"{HOSTED}\n[alerts]\n{alerts}\n")
    fine = 'webhook_url = "env:HOOK"\nwebhook_secret = "file:/run/secrets/hook"\n'
    assert load(written(tmp_path, f"{HOSTED}\n[alerts]\n{fine}"), {}).alerts.webhook_url == "env:HOOK"


QUALITY = """
[[backends]]
name = "small"
vendor = "scripted"
model = "m"
[[backends]]
name = "large"
vendor = "scripted"
model = "m"
[[routes]]
name = "assistant"
backends = ["small", "large"]
"""


@pytest.mark.parametrize(
    ("quality", "says"),
    [
        ("floor = 0.9", "routes.assistant.quality.weak: is required"),
        ("weak = []\nfloor = 0.9", "routes.assistant.quality.weak: name at least one backend"),
        ('weak = ["smal"]\nfloor = 0.9', '"smal" is not a backend of this route. Did you mean "small"?'),
        ('weak = ["small", "large"]\nfloor = 0.9', "leave at least one backend of the route"),
        ('weak = ["small"]', "routes.assistant.quality: set either floor or strong_share"),
        ('weak = ["small"]\nfloor = 0.9\nstrong_share = 0.1', "routes.assistant.quality: set either floor or strong_share"),
        ('weak = ["small"]\nfloor = 1.1', "routes.assistant.quality.floor"),
        ('weak = ["small"]\nflor = 0.9', 'routes.assistant.quality.flor: unknown setting. Did you mean "floor"?'),
    ],
)
def test_when_a_weak_backend_will_do(tmp_path: Path, quality: str, says: str) -> None:
    assert says in refusal(tmp_path, f"{QUALITY}[routes.quality]\n{quality}\n")
    path = written(tmp_path, f'{QUALITY}[routes.quality]\nweak = ["small"]\nstrong_share = 0.25\n')
    rule = load(path, {}).routes[0].quality
    assert rule is not None and (rule.weak, rule.floor, rule.strong_share, rule.model) == (("small",), None, 0.25, "")
    changed = load(path, {"TOLLWAY_ROUTES__ASSISTANT__QUALITY__STRONG_SHARE": "0.5"}).routes[0].quality
    assert changed is not None and changed.strong_share == 0.5
