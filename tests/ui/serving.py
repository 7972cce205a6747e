"""`redis-acker ui` as a process, for tests."""

from __future__ import annotations

import re
import subprocess

from tests.cli.acting_commands.test_rotate import Log
from tests.cli.runs import SCRIPT
from tests.waiting import wait_until

TOKEN = "correct-horse-battery"


class Served:
    """The page of one namespace, until stop()."""

    def __init__(self, url: str, namespace: str, *options: str) -> None:
        command = [SCRIPT, "ui", "--port", "0", "--url", url, "-n", namespace, *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.log = Log(self.process.stderr)
        try:
            wait_until(self._is_up, 60)
        except BaseException:
            self.process.kill()
            raise
        found = re.search(r"http://[^\s\"]+/", self.log.text)
        assert found
        self.url = found[0]
        self.host = self.url.split("/")[2]

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.log.text
        return "Serving the page." in self.log.text

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()
