"""compose.yaml and Dockerfile against the Compose specification and the settings they name.

No container engine runs here: what a file says is checked, not what it starts.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from gateway.settings import ConfigError, Server, load
from gateway.supervisor import DRAIN_MARGIN_S, ENGINE_STOP_S

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "compose.yaml").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROMETHEUS = ROOT / "dashboards" / "prometheus"
GRAFANA = ROOT / "dashboards" / "grafana"


def test_it_is_a_compose_file() -> None:
    parsed = PyCompose.from_yaml(TEXT)
    parsed.validate()  # every named network, volume, config and secret is defined
    assert {"gateway", "postgres", "valkey", "prometheus", "grafana"} <= set(parsed.service_names())


@pytest.mark.parametrize("damage", [("image: grafana", "imagine: grafana"), ("condition: service_healthy", "condition: healthy")])
def test_the_check_sees_mistakes(damage: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="services"):
        PyCompose.from_yaml(TEXT.replace(*damage))


def settings_of(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("TOLLWAY_")}


def test_every_setting_named_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment = settings_of(SERVICES["gateway"]["environment"])
    assert environment
    settings = load(None, environment)
    assert settings.server.host == "0.0.0.0"
    assert settings.storage.redis_url.startswith("redis://valkey:6379")
    with pytest.raises(ConfigError):
        load(None, {**environment, "TOLLWAY_SERVER__PROT": "1"})


def test_every_setting_in_the_texts_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = set(re.findall(r"TOLLWAY_[A-Z0-9]+__[A-Z0-9_]+", TEXT + DOCKERFILE))
    known = settings_of(SERVICES["gateway"]["environment"])
    for name in sorted(names - set(known)):
        load(None, {name: "x"})
    assert "TOLLWAY_STORAGE__DATABASE_URL" in names


def test_the_migration_sees_what_the_gateway_sees() -> None:
    gateway, migrate = SERVICES["gateway"], SERVICES["migrate"]
    for key in ("image", "build", "environment", "secrets", "volumes"):
        assert migrate[key] == gateway[key], key
    assert migrate["command"] == ["tollway", "migrate"]
    assert gateway["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


def test_the_port_is_the_same_everywhere() -> None:
    port = Server().port
    gateway = SERVICES["gateway"]
    assert gateway["environment"]["TOLLWAY_SERVER__PORT"] == str(port)
    assert gateway["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f":{port}/health/ready" in " ".join(gateway["healthcheck"]["test"])
    assert f"EXPOSE {port}" in DOCKERFILE
    jobs = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    assert next(job for job in jobs if job["job_name"] == "tollway")["static_configs"][0]["targets"] == [f"gateway:{port}"]


def test_nothing_is_published_beyond_this_machine() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_images_are_pinned() -> None:
    images = [service["image"] for service in SERVICES.values()] + re.findall(r"^FROM (\S+)", DOCKERFILE, re.M)
    assert len(images) > len(SERVICES)
    for image in images:
        assert re.search(r":v?\d+\.\d+\.?\d*(-[a-z]+)*$", image), image


def test_long_running_services_have_health_checks() -> None:
    for name, service in SERVICES.items():
        if service.get("restart") != "no":
            assert service["restart"] == "unless-stopped", name
            assert "test" in service["healthcheck"], name


def test_a_stop_lets_the_gateway_drain() -> None:
    grace = int(SERVICES["gateway"]["stop_grace_period"].removesuffix("s"))
    drain_s = float(SERVICES["gateway"]["environment"]["TOLLWAY_SERVER__DRAIN_S"])
    assert grace > drain_s + DRAIN_MARGIN_S + ENGINE_STOP_S


def test_the_journal_lies_on_a_local_volume() -> None:
    state = SERVICES["gateway"]["environment"]["TOLLWAY_STORAGE__STATE_DIR"]
    assert f"state:{state}" in SERVICES["gateway"]["volumes"]
    assert COMPOSE["volumes"]["state"] == {"driver": "local"}
    assert f"VOLUME {state}" in DOCKERFILE


def test_secrets_come_from_files() -> None:
    assert all(set(secret) == {"file"} for secret in COMPOSE["secrets"].values())
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    docker_ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "secrets/" in ignored
    assert "secrets" in docker_ignored
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|SECRET|TOKEN|_KEY", variable):
                assert "/run/secrets/" in value, f"{name}: {variable}"
    wanted = {secret for service in SERVICES.values() for secret in service.get("secrets", ())}
    assert wanted == set(COMPOSE["secrets"])


def test_mounted_files_exist() -> None:
    mounted = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ()) if volume.startswith("./")]
    assert mounted
    assert [path for path in mounted if not (ROOT / path).exists()] == []
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M):
        assert [name for name in copied.split() if not (ROOT / name).exists()] == []


def test_the_image_has_the_engine_and_can_trace() -> None:
    """Extras that the project has, their packages pinned; torch comes from its own index where the engine is among them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    extras = SERVICES["gateway"]["build"]["args"]["EXTRAS"].split(",")
    assert set(extras) == {"local", "otel"} and f"ARG EXTRAS={','.join(extras)}\n" in DOCKERFILE
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()}
    wanted = {re.split(r"[=<>\[]", package)[0].lower() for extra in extras for package in project[extra]}
    assert wanted <= pinned, wanted - pinned
    (install,) = re.findall(r"^RUN (case .*?)\n\n", DOCKERFILE, re.MULTILINE | re.DOTALL)
    for chosen, torch in (("local,otel", 1), ("otel", 0), ("", 0), ("local", 1)):
        said = subprocess.run(
            ["/bin/sh", "-c", install.replace("/opt/tollway/bin/pip", "echo")],
            env={"EXTRAS": chosen, "TORCH_INDEX_URL": "there"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert said.count("--index-url there") == torch and said.splitlines()[-1].endswith(f".[{chosen}]" if chosen else " ."), said
