"""Containerfiles of this repository, and their RUN line without a container engine."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS_IMAGE = "components/kfp/Containerfile"
PROGRAMS_IMAGE = "core/Containerfile"


@dataclass(frozen=True)
class Containerfile:
    """Instructions of a Containerfile with one FROM and one RUN.

    Attributes:
        steps: each instruction with its text, in the file's order.
    """

    steps: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, path: str) -> Containerfile:
        """Return the file at a path below the repository's root."""
        text = (ROOT / path).read_text("utf-8").replace("\\\n", " ")
        lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
        return cls(tuple((name, value) for name, value in lines))

    def get(self, instruction: str) -> str:
        """Return the text of the only instruction of this name."""
        [found] = [value for name, value in self.steps if name == instruction]
        return found

    @property
    def python_version(self) -> str:
        """Python of the base image, such as 3.12."""
        found = re.fullmatch(r"docker\.io/library/python:(3\.\d+)-slim", self.get("FROM"))
        assert found is not None, self.get("FROM")
        return found[1]

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the ENV instruction."""
        return dict(word.split("=", 1) for word in shlex.split(self.get("ENV")))

    @property
    def mounts(self) -> dict[str, str]:
        """Folder below the repository's root for each mounted path of the RUN instruction."""
        return {target: source for source, target in re.findall(r"source=([^,]+),target=(\S+)", self.get("RUN"))}

    @property
    def shell(self) -> str:
        """Shell command of the RUN instruction."""
        return re.sub(r"--mount=\S+", "", self.get("RUN")).strip()

    @property
    def pip_lines(self) -> list[list[str]]:
        """Words after each `pip install`."""
        return [line.split() for line in re.findall(r"pip install ([^&]+)", self.shell)]

    def run_in(self, environment: Path, dist: Path) -> None:
        """Run the shell command with the pip of a virtual environment.

        Args:
            environment: the virtual environment, which replaces the image's Python.
            dist: folder with the wheels, which replaces the mounted folder `dist`.
        """
        shell = self.shell
        for target, source in self.mounts.items():
            folder = dist if source == "dist" else ROOT / source
            shell = re.sub(rf"(?<![\w/]){re.escape(target)}/", f"{folder}/", shell)
        path = f"{environment / 'bin'}:/usr/bin:/bin"
        subprocess.run(["sh", "-ec", shell], check=True, timeout=300, env={"PATH": path, "HOME": str(environment)})
