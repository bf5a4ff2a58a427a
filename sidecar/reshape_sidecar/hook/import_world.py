"""What the result of an import depends on: variables, packages, and folders that hide a package.

Does: notes these at the zygote's import, and names the first that differs at a start or at the
script's own import. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PREFIXES = (
    *("ABSL_", "AOT_", "AUTOGRAPH_", "BLIS_", "DNNL_", "GOMP_", "GOTO_", "GRPC_", "HDF5_"),
    *("INDUCTOR_", "JAX_", "KERAS_", "KINETO_", "KMP_", "MKL_", "MKLDNN_", "MPMATH_", "NCCL_"),
    *("NPY_", "NUMEXPR_", "NUMPY_", "NVRTC_", "OMP_", "ONEDNN_", "OPENBLAS_"),
    *("PROTOCOL_BUFFERS_", "PYTORCH_", "SYMPY_", "TF2_", "TF_", "TORCHDYNAMO_"),
    *("TORCHEXPORT_", "TORCHINDUCTOR_", "TORCH_", "TPU_", "VECLIB_", "XLA_"),
)
"""Of variables that a framework or a library below it reads when it is imported."""
NOT_READ = frozenset({"TF_CONFIG", "PYTORCH_NVML_BASED_CUDA_CHECK"})
"""Variables with such a prefix that are read later, and may differ from start to start. Lightning
sets the second before it imports PyTorch, which reads it whenever it looks for GPUs."""
LIBRARIES = ("accelerate", "transformers")
"""Libraries on top of PyTorch that a zygote imports if the script does."""
OF_LIBRARIES = (*LIBRARIES, "huggingface_hub", "safetensors", "tokenizers")
"""Packages that read variables of ``LIBRARY_PREFIXES`` when they are imported."""
LIBRARY_PREFIXES = (
    *("ACCELERATE_", "DISABLE_TELEMETRY", "HF_", "HUGGINGFACE_", "HUGGING_FACE_", "SAFETENSORS_"),
    *("SM_", "SMP_", "TOKENIZERS_", "TRANSFORMERS_", "USE_JAX", "USE_TF", "USE_TORCH", "XDG_"),
)
SUFFIXES = (".py", ".so")

Stamp = tuple[int, int]
"""Size and time of a file."""


@dataclass(frozen=True, slots=True)
class ImportWorld:
    """The surroundings of the zygote's import."""

    path: tuple[str, ...]
    """``sys.path`` without the folder of the program."""
    packages: frozenset[str]
    """Top-level modules that the import brought."""
    variables: Mapping[str, str]
    """Variables that the import could read."""
    own: frozenset[str]
    """Variables that the import itself sets."""
    stamps: Mapping[str, Stamp | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """Why the zygote's import is not the script's."""

    reason: str
    variables: dict[str, str | None] | None = None
    """Variables with which a zygote could serve this script; None: none could."""


def read_by_imports(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that an import may read."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(PREFIXES) and name not in NOT_READ
    }


def read_by_libraries(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that an import of ``LIBRARIES`` may read beside the framework's."""
    return {name: text for name, text in environment.items() if name.startswith(LIBRARY_PREFIXES)}


def stamps(packages: Iterable[str]) -> dict[str, Stamp | None]:
    """Return the stamps of all files that say which packages, which hook and which options."""
    folders = {
        str(Path(file).parents[1 if Path(file).stem == "__init__" else 0])
        for name in packages
        if name not in sys.stdlib_module_names
        and (file := getattr(sys.modules.get(name), "__file__", None)) is not None
    }
    files = [*_hook_files(), *_settings_files()]
    for folder in sorted(folders):
        files.append(folder)
        files += map(str, Path(folder).glob("*.dist-info/RECORD"))
    return {file: _stamp(file) for file in files}


def stale(world: ImportWorld) -> str | None:
    """Return what has changed on the disk since the import; None if nothing has."""
    for file, stamp in world.stamps.items():
        if _stamp(file) != stamp:
            return f"{file} has changed since the framework was imported"
    return None


class Comparison:
    """The surroundings of the script's imports beside those of the zygote's."""

    def __init__(self, world: ImportWorld) -> None:
        self._world = world
        self._searched = set(world.path)

    def difference(self, name: str, environment: Mapping[str, str]) -> Difference | None:
        """Return why the script's import of ``name`` would give something else; None if not."""
        shadow = self._shadow()
        if shadow is not None:
            return Difference(f"{shadow} hides a module of the framework")
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        world = self._world
        now, then = read_by_imports(environment), read_by_imports(world.variables)
        if name.partition(".")[0] in OF_LIBRARIES:
            now |= read_by_libraries(environment)
            then |= read_by_libraries(world.variables)
        changed = {
            one: now.get(one)
            for one in sorted({*now, *then} - world.own)
            if now.get(one) != then.get(one)
        }
        if not changed:
            return None
        return Difference(f"the script sets {', '.join(changed)} above its imports", changed)

    def _shadow(self) -> str | None:
        """Return a file in a folder of the script's that has the name of a brought module."""
        for folder in sys.path:
            if folder in self._searched:
                continue
            self._searched.add(folder)
            with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
                for entry in entries:
                    stem = entry.name.partition(".")[0]
                    if stem in self._world.packages and _is_module(entry):
                        return entry.path
        return None


def _is_module(entry: os.DirEntry[str]) -> bool:
    if entry.is_dir():
        return os.path.exists(os.path.join(entry.path, "__init__.py"))
    return entry.name.endswith(SUFFIXES)


def _hook_files() -> Iterator[str]:
    for name, module in sys.modules.items():
        if name.startswith("_reshape_hook.") and getattr(module, "__file__", None):
            yield str(module.__file__)


def _settings_files() -> Iterator[str]:
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    yield os.path.join(home, "keras.json")


def _stamp(file: str) -> Stamp | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
