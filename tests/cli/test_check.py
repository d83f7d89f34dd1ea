"""`tollway check`: each thing that would not work is found and said, before anything is started."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import operations
from gateway.access import COMMAND_LINE
from gateway.cli.check import Finding, file_system, outside, state_folder, the_price, the_quality, the_vectors
from gateway.settings import BackendSettings, PriceSettings, QualitySettings, RouteSettings, Settings, Storage
from tests.cli.test_cli import tollway
from tests.conftest import Database
from tests.fakes.engine_pages import reply, sglang
from tests.fakes.upstream import FakeUpstream, Received, Step, json_reply

PRICED = PriceSettings(input="1", output="2")


class Models(http.server.BaseHTTPRequestHandler):
    """An upstream that lists its models to whoever has the key."""

    def do_GET(self) -> None:
        self.send_response(200 if self.headers["authorization"] == "Bearer good-key-0001" else 401)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Models) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


async def found(tmp_path: Path, *backends: BackendSettings, **storage: str) -> dict[str, Finding]:
    settings = Settings(storage=Storage(state_dir=str(tmp_path), **storage), backends=backends)
    return {finding.subject: finding for finding in await outside(settings)}


def backend(url: str, key: str) -> BackendSettings:
    return BackendSettings(name="b", vendor="openai-compatible", model="m", base_url=url, api_key=key, price=PRICED)


async def test_a_backend_that_answers(upstream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECK_KEY", "good-key-0001")
    assert (await found(tmp_path, backend(upstream, "env:CHECK_KEY")))["backend b"] == Finding("ok", "backend b", f"{upstream} answers")


async def test_an_engine_that_does_not_publish_its_load_is_a_warning(tmp_path: Path) -> None:
    def page(received: Received) -> list[Step]:
        return reply(sglang(0, 0, 0.1)) if received.target == "/metrics" else json_reply({"data": []})

    for answer, level in ((page, "ok"), (json_reply({}, 404), "warning")):
        async with FakeUpstream(answer) as fake:
            one = BackendSettings(name="b", vendor="sglang", model="m", base_url=fake.url + "/v1", price=PRICED)
            finding = (await found(tmp_path, one))["backend b"]
        assert (finding.level, "--enable-metrics" in finding.text) == (level, level == "warning"), finding


async def test_a_wrong_credential_and_a_dead_address(upstream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECK_KEY", "wrong-key-0001")
    wrong = (await found(tmp_path, backend(upstream, "env:CHECK_KEY")))["backend b"]
    assert (wrong.level, "401" in wrong.text) == ("problem", True)
    assert (await found(tmp_path, backend("http://127.0.0.1:9/v1", "")))["backend b"].level == "problem"


async def test_a_local_backend_without_its_model(tmp_path: Path) -> None:
    local = BackendSettings(name="smol", vendor="local", model="smollm2-135m", price=PRICED)
    finding = (await found(tmp_path, local))["backend smol"]
    assert finding.level in ("warning", "problem")  # a problem where the extra is not installed
    assert "tollway models get smollm2-135m" in finding.text or "tollway[local]" in finding.text


async def test_a_script_that_cannot_be_played(tmp_path: Path) -> None:
    bad = BackendSettings(name="s", vendor="scripted", model="m", script="no = 'script'", price=PRICED)
    assert (await found(tmp_path, bad))["backend s"].level == "problem"


async def test_databases(storage: Storage, postgres_url: str, tmp_path: Path) -> None:
    ready = (await found(Path(storage.state_dir), database_url=storage.database_url))["database"]
    assert ready.level == "ok"
    unmigrated = (await found(tmp_path, database_url=postgres_url))["database"]
    assert (unmigrated.level, "run `tollway migrate`" in unmigrated.text) == ("problem", True)
    away = (await found(tmp_path, database_url="postgresql+asyncpg://u:hunter2@127.0.0.1:9/x"))["database"]
    assert (away.level, "hunter2" in away.text) == ("problem", False)
    assert (await found(tmp_path))["database"] == Finding(
        "ok", "database", f"sqlite+aiosqlite:///{tmp_path}/tollway.db will be made by the first start"
    )


async def test_a_name_that_the_api_gave_as_well_is_told_before_a_start_is_refused(database: Database, tmp_path: Path) -> None:
    here = Path(database.storage.state_dir)
    scripted = BackendSettings(name="b", vendor="scripted", model="m", price=PRICED)
    raw = {"vendor": "scripted", "model": "m", "price": {"input": "1", "output": "2"}}
    await operations.put_backend(database.engine, COMMAND_LINE, Settings(), "other", raw)
    fine = (await found(here, scripted, database_url=database.url))["made over the API"]
    assert (fine.level, fine.text) == ("ok", "1 backends and 0 routes made there go with the file")
    await operations.put_backend(database.engine, COMMAND_LINE, Settings(), "b", raw)
    both = (await found(here, scripted, database_url=database.url))["made over the API"]
    assert both.level == "problem" and "backends.b: stands in tollway.toml, and another of that name was made over the API" in both.text
    away = await found(tmp_path, scripted, database_url="postgresql+asyncpg://u:p@127.0.0.1:9/x")
    assert (away["made over the API"].level, "not looked at" in away["made over the API"].text) == ("warning", True)
    assert "made over the API" not in await found(tmp_path, scripted)


async def test_redis(valkey_url: str, tmp_path: Path) -> None:
    assert (await found(tmp_path, redis_url=valkey_url))["redis"].level == "ok"
    assert (await found(tmp_path, redis_url="redis://127.0.0.1:9"))["redis"].level == "problem"


def test_prices(tmp_path: Path) -> None:
    def level(**fields: object) -> str:
        return the_price(BackendSettings(name="b", **fields), {("vllm", "known")}).level  # type: ignore[arg-type]

    assert level(vendor="vllm", model="x", price=PRICED) == "ok"
    assert level(vendor="vllm", model="known") == "ok"
    assert level(vendor="openai", model="gpt-4o-mini") == "ok"
    assert level(vendor="vllm", model="x") == "warning"
    assert level(vendor="azure_openai", model="our-deployment") == "warning"
    assert level(vendor="azure_openai", model="our-deployment", known_as="gpt-4o-mini") == "ok"


def test_where_the_journal_lies(tmp_path: Path) -> None:
    assert file_system(Path("/proc/self")) == "proc"
    assert state_folder(tmp_path / "a" / "b").level in ("ok", "warning")
    assert not (tmp_path / "a").exists(), "a check changes nothing"
    tmp_path.chmod(0o777)
    assert state_folder(tmp_path).level == "warning"


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "tollway.toml"
    file.write_text('[[backends]]\nname = "a"\nvendor = "scripted"\nmodel = "m"\nprice = { input = "1", output = "2" }\n')
    done = tollway("check", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "backend a                plays its script" in done.stdout
    file.write_text('[[backends]]\nname = "a"\nvendor = "vllm"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n')
    done = tollway("check", cwd=tmp_path)
    assert done.returncode == 1
    assert "problem  backend a" in done.stdout and "warning  price of a" in done.stdout
    file.write_text('[[backends]]\nname = "a"\nvendor = "nobody"\nmodel = "m"\n')
    assert tollway("check", cwd=tmp_path).returncode == 78
    assert not (tmp_path / ".tollway").exists()


def test_a_route_over_vectors_of_two_models() -> None:
    def embedding(name: str, model: str) -> BackendSettings:
        return BackendSettings(name=name, vendor="openai", model=model, price=PRICED)

    backends = (embedding("a", "text-embedding-3-small"), embedding("b", "text-embedding-3-large"), embedding("c", "gpt-4o"))
    routes = (RouteSettings(name="mixed", backends=("a", "b")), RouteSettings(name="one", backends=("a", "c")))
    found = the_vectors(Settings(backends=backends, routes=routes))
    assert [(finding.level, finding.subject) for finding in found] == [("warning", "route mixed")]


def test_models_that_say_where_weak_backends_will_do(tmp_path: Path) -> None:
    backends = tuple(BackendSettings(name=name, vendor="scripted", model="m") for name in "ab")

    def found(model: str) -> Finding:
        rule = QualitySettings(weak=("a",), floor=0.9, model=model)
        return the_quality(Settings(backends=backends, routes=(RouteSettings(name="r", backends=("a", "b"), quality=rule),)))[0]

    assert found("").level == "ok" and "RouteLLM" in found("").text
    (tmp_path / "broken").write_bytes(b"x")
    assert found(str(tmp_path / "broken")).level == found(str(tmp_path / "none")).level == "problem"
    assert the_quality(Settings(backends=backends)) == []
