"""Runs the COPY and RUN steps of a Dockerfile in folders of this machine, stage by stage."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Stage:
    """One stage. Its root folder stands for the image's ``/``."""

    root: Path
    workdir: str = "/"
    environ: dict[str, str] = field(default_factory=dict)
    user: str = ""
    commands: dict[str, str] = field(default_factory=dict)

    def at(self, path: str) -> Path:
        """Return the path on this machine for a path of the image."""
        inside = path if path.startswith("/") else f"{self.workdir.rstrip('/')}/{path}"
        return self.root / inside.strip("/")


class Build:
    """Builds the stages of one Dockerfile. Paths in the folders ``own`` are mapped into the stage's root."""

    own = ("/opt", "/src", "/dist")

    def __init__(self, dockerfile: Path, context: Path, folder: Path) -> None:
        self._text = dockerfile.read_text(encoding="utf-8").replace("\\\n", " ")
        self._context = context
        self._folder = folder
        self.stages: dict[str, Stage] = {}

    def run(self) -> Stage:
        """Run every step and return the last stage.

        Raises:
            subprocess.CalledProcessError: A step failed.
        """
        stage: Stage | None = None
        for line in self._text.splitlines():
            instruction, _, rest = line.strip().partition(" ")
            if not instruction or instruction.startswith("#"):
                continue
            if instruction == "FROM":
                stage = self._begin(rest)
                continue
            assert stage is not None
            self._step(stage, instruction, rest.strip())
        assert stage is not None
        return stage

    def _begin(self, rest: str) -> Stage:
        _, _, name = rest.partition(" AS ")
        name = name or f"stage-{len(self.stages)}"
        self.stages[name] = Stage(self._folder / name)
        return self.stages[name]

    def _step(self, stage: Stage, instruction: str, rest: str) -> None:
        match instruction:
            case "WORKDIR":
                stage.workdir = rest
                stage.at("").mkdir(parents=True, exist_ok=True)
            case "ENV":
                stage.environ.update(re.findall(r"(\w+)=(\S+)", rest))
            case "USER":
                stage.user = rest
            case "COPY":
                self._copy(stage, rest.split())
            case "RUN":
                self._shell(stage, rest)
            case _:
                stage.commands[instruction] = rest

    def _copy(self, stage: Stage, words: list[str]) -> None:
        source = self._context
        if words[0].startswith("--from="):
            source = self.stages[words.pop(0).removeprefix("--from=")].root
        *names, target = words
        for name in names:
            found = source / name.strip("/")
            goal = stage.at(target)
            if found.is_dir():
                shutil.copytree(found, goal, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                goal = goal / found.name if target.endswith("/") else goal
                goal.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, goal)

    def _shell(self, stage: Stage, script: str) -> None:
        for folder in self.own:
            script = re.sub(rf"(?<![\w./-]){folder}(?=/|\s|$)", str(stage.root) + folder, script)
        script = re.sub(r"(?<![\w./-])python(?= -m venv)", sys.executable, script)
        plain = {name: value for name, value in os.environ.items() if name in _KEPT}
        subprocess.run(  # noqa: S602  (the Dockerfile is ours)
            script, shell=True, check=True, cwd=stage.at(""), env={**plain, **stage.environ}
        )


_KEPT = {"PATH", "HOME", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONFIG_FILE", "PIP_CERT"}
