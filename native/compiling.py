"""Translated sources to extension modules, by mypyc and the C compiler.

    python -m native.compiling FOLDER MODULE...

Does: compiles the modules of a staged folder, whose paths are relative to it, and leaves the
extension modules beside them. All are in one library, ``reshape__mypyc``. Two files are compiled at
a time. Never: lets the compiler change what floating-point numbers come out: no product and sum
become one operation, and nothing is tuned to this machine. State: the folder.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mypyc.build import mypycify
from setuptools import Distribution
from setuptools.command.build_ext import build_ext

GROUP = "reshape"
"""The library that holds the code is called after it."""
JOBS = 2
FLAGS = ["-ffp-contract=off", "-Wno-error"]
"""What another compiler warns of in mypyc's C is no reason to fail."""
MYPY = [
    "--config-file=",
    "--explicit-package-bases",
    "--no-site-packages",
    "--ignore-missing-imports",
]
"""What is installed here must not matter. ``make check`` is where types are checked strictly."""


class BuildInParallel(build_ext):  # type: ignore[misc]
    """Compiles several files of one extension at a time."""

    def build_extension(self, ext: Any) -> None:
        compile_one_by_one = self.compiler.compile

        def compile_all(sources: list[str], *args: Any, **kwargs: Any) -> list[str]:
            def one(source: str) -> list[str]:
                return list(compile_one_by_one([source], *args, **kwargs))

            with ThreadPoolExecutor(JOBS) as pool:
                return [made for objects in pool.map(one, sources) for made in objects]

        self.compiler.compile = compile_all
        try:
            super().build_extension(ext)
        finally:
            self.compiler.compile = compile_one_by_one


def main() -> None:
    """Compile; the exit code is not 0 if mypyc or the compiler refuse something."""
    folder, *modules = sys.argv[1:]
    os.chdir(folder)
    extensions = mypycify(
        [*MYPY, *modules],
        opt_level="2",
        debug_level="0",
        multi_file=True,
        group_name=GROUP,
        target_dir="build",
    )
    for extension in extensions:
        extension.extra_compile_args += FLAGS
    command = BuildInParallel(Distribution({"name": GROUP, "ext_modules": extensions}))
    command.inplace = True
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    main()
