"""docker-compose.yml is valid, for every profile, and keeps its promises: persistent, limited, checked, no secrets."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.binaries import missing
from tests.deploy.compose import COMPOSE_FILE, PROFILES, ROOT, read_file, read_services

PASSWORD = "a-secret-of-the-test"


@cache
def compose_config(profile: str) -> Any:
    """The file as docker-compose itself reads it."""
    program = shutil.which("docker-compose") or missing("docker-compose")
    done = subprocess.run(
        [program, "--profile", profile, "--file", str(COMPOSE_FILE), "config"],
        cwd=ROOT,
        env={**os.environ, "REDIS_PASSWORD": PASSWORD},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return YAML(typ="safe", pure=True).load(done.stdout)


def test_the_file_follows_the_compose_schema() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE_FILE)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("profile", PROFILES)
def test_docker_compose_reads_what_the_tests_read(profile: str) -> None:
    theirs = compose_config(profile)["services"]
    for name, service in read_services(profile, {"REDIS_PASSWORD": PASSWORD}).items():
        # It prints dollars doubled, as they stand in a file.
        assert [word.replace("$$", "$") for word in theirs[name]["command"]] == service.command
        assert theirs[name].get("environment", {}) == service.environment
        assert {
            other: one["condition"] for other, one in theirs[name].get("depends_on", {}).items()
        } == service.conditions


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_whole(profile: str) -> None:
    services = read_services(profile)

    assert {f"rotator-{profile}", f"demo-{profile}", "spark-master", "spark-worker"} <= set(services)
    assert all(other in services for service in services.values() for other in service.conditions)
    assert len([name for name in services if name.startswith("redis-") and not name.endswith("-init")]) == (
        1 if profile == "one" else 3
    )


@pytest.mark.parametrize("profile", PROFILES)
def test_every_service_is_limited_and_may_do_little(profile: str) -> None:
    for service in read_services(profile).values():
        assert {"mem_limit", "cpus"} <= set(service.settings), service.name
        assert service.settings["cap_drop"] == ["ALL"], service.name
        assert service.is_ours or service.settings["user"] == "redis", service.name


@pytest.mark.parametrize("profile", PROFILES)
def test_every_service_that_stays_has_a_health_check(profile: str) -> None:
    for service in read_services(profile).values():
        assert service.restarts == (service.health_check is not None), service.name


@pytest.mark.parametrize("profile", PROFILES)
def test_every_server_keeps_its_data_in_a_volume_of_its_own(profile: str) -> None:
    volumes = set(read_file()["volumes"])
    for name, service in read_services(profile).items():
        if name.startswith("redis-") and service.restarts:
            assert service.settings["volumes"] == [f"{name}:/data"]
            assert name in volumes


def test_the_only_password_in_the_file_is_the_default_of_a_variable() -> None:
    for profile in PROFILES:
        for service in read_services(profile, {"REDIS_PASSWORD": PASSWORD}).values():
            words = [*service.command, *(service.health_check or [])]
            assert not any(PASSWORD in word or "demo@" in word for word in words), service.name
            for key, value in service.environment.items():
                assert ":demo@" not in value, f"{service.name}: {key}"


def test_only_this_machine_reaches_a_published_port() -> None:
    published = [port for one in read_file()["services"].values() for port in one.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_what_the_image_is_built_from_is_not_ignored(tmp_path: Path) -> None:
    """Builds the package from the files that the Dockerfile copies, out of those that .dockerignore lets through."""
    let_through = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }  # the first line ignores everything
    copies = [line.split()[1:-1] for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("COPY ")]
    sources = {source for names in copies if "--from=build" not in names for source in names}

    assert sources == let_through
    for source in sources:
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, tmp_path / source)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path / "dist"), str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_image_does_not_run_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    last_stage = lines[max(at for at, line in enumerate(lines) if line.startswith("FROM ")) :]

    assert "USER 10001" in last_stage
    assert last_stage.index("USER 10001") > max(at for at, line in enumerate(last_stage) if line.startswith("RUN "))
