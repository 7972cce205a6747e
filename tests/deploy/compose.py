"""Reads docker-compose.yml and the Dockerfile: what would be started, with which settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "Dockerfile"

PROFILES = ("one", "shards", "cluster")

#: $$ is a dollar; ${NAME:-default} a variable of the caller's environment.
_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+):-([^}]*)\})")


@dataclass(frozen=True)
class Service:
    """A service as the file describes it, with variables filled in."""

    name: str
    settings: dict[str, Any]

    @property
    def profiles(self) -> list[str]:
        return list(self.settings["profiles"])

    @property
    def command(self) -> list[str]:
        return list(self.settings["command"])

    @property
    def environment(self) -> dict[str, str]:
        return dict(self.settings.get("environment", {}))

    @property
    def health_check(self) -> list[str] | None:
        """The command of the health check, if there is one."""
        test = self.settings.get("healthcheck", {}).get("test")
        if test is None or self.settings["healthcheck"].get("disable"):
            return None
        kind, *words = test
        return ["sh", "-c", *words] if kind == "CMD-SHELL" else words

    @property
    def conditions(self) -> dict[str, str]:
        """What has to be true of which service before this one is started."""
        return {name: one["condition"] for name, one in self.settings.get("depends_on", {}).items()}

    @property
    def restarts(self) -> bool:
        return bool(self.settings["restart"] == "unless-stopped")

    @property
    def instances(self) -> int:
        return int(self.settings.get("scale", 1))

    @property
    def is_ours(self) -> bool:
        """Whether it runs from the image of the Dockerfile."""
        return "build" in self.settings


def read_file(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The file with anchors and variables resolved, as far as it uses them."""
    document = YAML(typ="safe", pure=True).load(COMPOSE_FILE.read_text())
    filled: dict[str, Any] = _fill_in(document, environment or {})
    return filled


def read_services(profile: str, environment: Mapping[str, str] | None = None) -> dict[str, Service]:
    """The services of a profile, by name."""
    services = [Service(name, settings) for name, settings in read_file(environment)["services"].items()]
    return {service.name: service for service in services if profile in service.profiles}


def image_environment(places: Mapping[str, str]) -> dict[str, str]:
    """What the image sets, with `places` of this machine for directories of the image."""
    (line,) = re.findall(r"^ENV (.*)$", DOCKERFILE.read_text().replace("\\\n", " "), flags=re.MULTILINE)
    for inside, outside in places.items():
        line = line.replace(inside, outside)
    return dict(word.split("=", 1) for word in shlex.split(line))


def _fill_in(part: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(part, dict):
        return {key: _fill_in(value, environment) for key, value in part.items()}
    if isinstance(part, list):
        return [_fill_in(value, environment) for value in part]
    if isinstance(part, str):
        return _VARIABLE.sub(lambda found: found[1] or environment.get(found[2]) or found[3], part)
    return part
