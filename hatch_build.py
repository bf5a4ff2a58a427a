"""The build hook of the compiled wheel: HATCH_BUILD_HOOK_ENABLE_CUSTOM=true switches it on.

Does: has the modules that pyproject.toml names translated and compiled, and puts the translated
sources and the extension modules into the wheel. Never: runs by default: the usual wheel is pure,
and needs no compiler. State: a temporary folder between the beginning and the end of a build.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CannotCompile(Exception):
    """There is no compiled wheel. The text says why, and what to do about it."""


class CompiledWheel(BuildHookInterface[Any]):
    """What hatchling calls; see docs/decisions/0060-the-deciding-code-can-be-compiled.md."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":
            raise CannotCompile(
                "an editable installation is never compiled; "
                "unset HATCH_BUILD_HOOK_ENABLE_CUSTOM, or build a wheel"
            )
        sys.path.insert(0, self.root)  # the build backend does not put us there
        from native import staging, toolchain

        toolchain.check()
        self._folder = tempfile.TemporaryDirectory(prefix="reshape-native-")
        folder, root = Path(self._folder.name), Path(self.root)
        chosen, left_out = self.config["compiled"], self.config["not-compiled"]
        modules = staging.compiled_modules(root, chosen, left_out)
        staged = staging.stage(root, self.build_config.packages, modules, folder)
        command = [sys.executable, "-m", "native.compiling", str(folder), *staged.compiled]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotCompile(f"{done.stdout}{done.stderr}\nmypyc or the C compiler refused this")
        texts = [folder / name for name in staged.compiled]
        for path in (*texts, *_libraries(folder, texts)):
            build_data["force_include"][str(path)] = path.relative_to(folder).as_posix()
        build_data["pure_python"], build_data["infer_tag"] = False, True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._folder.cleanup()


def _libraries(folder: Path, texts: list[Path]) -> list[Path]:
    """One beside each compiled module, and the one that has their code."""
    found = [path for text in texts for path in text.parent.glob(f"{text.stem}.*.so")]
    found += folder.glob("*.so")
    if len(found) != len(texts) + 1:
        raise CannotCompile(f"{len(texts)} modules gave {len(found)} libraries: a defect")
    return found
