"""Starts what docker-compose.yml describes without Docker: the same commands, environment, order and health checks.

Each instance has a loopback address in place of a container's, and a directory in place of its volume. What Docker's
network and images would provide is provided here: names become addresses, servers bind to their own, and the
environment of the image is read from the Dockerfile.
"""

from __future__ import annotations

import os
import random
import re
import secrets
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.binaries import missing, require_binary
from tests.deploy.compose import ROOT, Service, image_environment, read_services
from tests.spark.cluster import JAVA_OPTIONS, START_S, require_java
from tests.spark.processes import MARK, start_keeper
from tests.waiting import wait_until

#: What stands for redis-server and redis-cli in a container: they know no other address than their own. A server that
#: sets its title writes over its environment, by which it is found when the test run was killed.
SERVER_SHIM = '#!/bin/sh\nexec "{binary}" "$@" --bind {address} --bind-source-addr {address} --set-proc-title no\n'
CLIENT_SHIM = '#!/bin/sh\nexec "{binary}" -h {address} "$@"\n'


@dataclass
class Instance:
    """One container, as a process."""

    service: Service
    address: str
    directory: Path
    environment: dict[str, str]
    command: list[str]
    health_check: list[str] | None
    starts: int = 0
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1

    @property
    def exit_code(self) -> int | None:
        return self.process.poll()

    def has_ended(self) -> bool:
        return self.exit_code is not None

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def is_healthy(self) -> bool:
        if self.health_check is None:
            return self.exit_code is None
        check = subprocess.run(
            self.health_check, cwd=self.directory, env=self.environment, capture_output=True, timeout=START_S
        )
        return check.returncode == 0


class Stack:
    """The services of some profiles. They end with stop() or with the test run."""

    def __init__(self, profiles: Sequence[str], directory: Path, password: str) -> None:
        require_java()
        self.services: dict[str, Service] = {}
        for profile in profiles:
            self.services |= read_services(profile, {"REDIS_PASSWORD": password})
        self._directory = directory
        self._mark = secrets.token_hex(8)
        # A network of its own: ports are the file's, also when another run is using the same.
        network = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}"
        self._free_addresses = (f"{network}.{place}" for place in range(1, 255))
        self._addresses: dict[tuple[str, int], str] = {}
        for service in self.services.values():
            self._give_addresses(service)
        self.instances: dict[str, list[Instance]] = {}
        self._keeper = start_keeper(self._mark, directory)

    def start(self, name: str) -> list[Instance]:
        """Starts a service, after whatever it depends on."""
        if name in self.instances:
            return self.instances[name]
        service = self.services[name]
        for other, condition in service.conditions.items():
            self.start(other)
            self.wait_for(other, condition)
        self.instances[name] = [self._instance(service, number) for number in range(service.instances)]
        for instance in self.instances[name]:
            instance.start()
        return self.instances[name]

    def run(self, name: str) -> Instance:
        """Starts a service that ends by itself, and waits for its end."""
        (instance,) = self.start(name)
        self._wait_until(instance.has_ended, START_S * 2)
        return instance

    def end(self, *names: str) -> None:
        """Ends services, as `docker compose down` does: their volumes stay, they come back with other addresses."""
        for name in names:
            for instance in self.instances.pop(name):
                instance.process.terminate()
                instance.process.wait()
            self._give_addresses(self.services[name])

    def wait_for(self, name: str, condition: str = "service_healthy") -> None:
        """Waits until all of a service is as another one wants it; the conditions are those of the file."""
        for instance in self.instances[name]:
            if condition == "service_completed_successfully":
                self._wait_until(instance.has_ended, START_S)
                assert instance.exit_code == 0, instance.log
            elif condition == "service_healthy":
                self._wait_until(instance.is_healthy, START_S)

    def is_healthy(self, name: str) -> bool:
        return all(instance.is_healthy() for instance in self.instances[name])

    def address(self, name: str) -> str:
        return self._addresses[name, 0]

    def stop(self) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait()
        for instances in self.instances.values():
            for instance in instances:
                instance.process.wait()

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _give_addresses(self, service: Service) -> None:
        for number in range(service.instances):
            self._addresses[service.name, number] = next(self._free_addresses)

    def _wait_until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Waits. Meanwhile it starts again what has ended and should run."""

        def tend_and_look() -> bool:
            for instances in self.instances.values():
                for instance in instances:
                    if instance.service.restarts and instance.has_ended():
                        instance.start()
            return condition()

        wait_until(tend_and_look, timeout_s, poll_s=0.2)

    def _instance(self, service: Service, number: int) -> Instance:
        address = self._addresses[service.name, number]
        directory = self._directory / f"{service.name}-{number + 1}"
        directory.mkdir(parents=True, exist_ok=True)
        environment = self._environment(service, address, directory)
        environment |= {key: self._with_addresses(value) for key, value in service.environment.items()}
        check = service.health_check
        return Instance(
            service,
            address,
            directory,
            environment,
            [self._with_addresses(word) for word in service.command],
            check and [self._with_addresses(word) for word in check],
        )

    def _environment(self, service: Service, address: str, directory: Path) -> dict[str, str]:
        """What image and network give to a container, beside what the file says."""
        ours = ("SPARK_", "PYSPARK_", "REDIS")
        base = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        base |= {MARK: self._mark, "HOSTNAME": address}
        if service.is_ours:
            places = {"/opt/acker": sys.prefix, "/var/lib/spark": str(directory), "$PATH": base["PATH"]}
            own = {"SPARK_LOCAL_IP": address, "PYTHONPATH": str(ROOT), "JAVA_TOOL_OPTIONS": JAVA_OPTIONS}
            return base | own | image_environment(places)
        shims = directory / "bin"
        shims.mkdir(exist_ok=True)
        client = shutil.which("redis-cli") or missing("redis-7.0")
        server = require_binary("redis-7.0")
        for name, text in (("redis-server", SERVER_SHIM), ("redis-cli", CLIENT_SHIM)):
            shim = shims / name
            shim.write_text(text.format(binary=server if name == "redis-server" else client, address=address))
            shim.chmod(stat.S_IRWXU)
        return base | {"PATH": f"{shims}:{base['PATH']}"}

    def _with_addresses(self, text: str) -> str:
        """Names of services become addresses, as Docker's name server would have it."""
        for name, number in self._addresses:
            if number == 0:
                text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", self.address(name), text)
        return text
