"""Variables that the functions of a data pipeline change: the seed of an augmentation layer, say.

Does: finds them in the traced functions, also in nested datasets; reads and assigns them; names the
pipelines in which the order of their changes is not fixed.
"""

from __future__ import annotations

import base64
import gc
from collections.abc import Iterable, Iterator
from typing import Any

from reshape_sidecar.hook import caches
from reshape_sidecar.hook.log import complain
from reshape_sidecar.hook.pipelines import pipeline

READING = frozenset(
    {"ReadVariableOp", "VariableShape", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp"}
)
WRITING = ("Assign", "Rng", "Stateful", "Resource")
"""Beginnings of the types of operations that change a variable."""
CALLING = "StatefulPartitionedCall"
TABLE_CHANGES = ("LookupTableInsert", "LookupTableRemove", "LookupTableImport")
IN_PARALLEL = ("_ParallelMapDataset", "_ParallelInterleaveDataset")
AHEAD = ("_PrefetchDataset", "_ParallelBatchDataset", *IN_PARALLEL)
"""Datasets that draw from their input in a thread of their own."""
GRAPHS_MAX = 500
"""Most nested functions of one function that are inspected."""


def functions(dataset: Any) -> Iterator[Any]:
    """Yield the traced functions that a dataset applies."""
    for value in list(vars(dataset).values()):
        function = getattr(value, "function", None)
        if getattr(function, "graph", None) is not None:
            yield function


def operations(graph: Any) -> Iterator[Any]:
    """Yield the operations of a graph and of the functions in it, however nested."""
    waiting, known = [graph], {id(graph)}
    for _ in range(GRAPHS_MAX):
        if not waiting:
            return
        one = waiting.pop()
        yield from one.get_operations()
        for function in getattr(one, "_functions", {}).values():
            inner = getattr(function, "graph", None)
            if inner is not None and id(inner) not in known:
                known.add(id(inner))
                waiting.append(inner)


def changed(graph: Any) -> list[Any]:
    """Return the handles of the outer variables that a traced function may change."""
    nested = None
    out = []
    for handle, inside in graph.captures:
        if handle.dtype.name != "resource" or not is_variable(handle):
            continue
        consumers = {operation.type for operation in inside.consumers()}
        direct = any(_writes(kind) for kind in consumers)
        if not direct and consumers - READING:  # it goes on into a function or a dataset
            if nested is None:
                nested = any(_writes(one.type) for one in operations(graph))
            direct = nested
        if direct:
            out.append(handle)
    return out


def _writes(kind: str) -> bool:
    return kind.startswith(WRITING) and kind not in READING and kind != CALLING


def is_variable(handle: Any) -> bool:
    """Return whether ``handle`` is that of a variable of numbers."""
    data = getattr(handle, "_handle_data", None)
    if not hasattr(handle, "numpy") or data is None or not data.shape_and_type:
        return False
    kind = dtype_of(handle)
    return bool(kind.is_floating or kind.is_integer or kind.is_complex or kind.is_bool)


def with_inner(end: Any) -> tuple[list[Any], bool]:
    """Return the datasets of a pipeline and those that its functions capture.

    The second value is False if a captured dataset is not found.
    """
    waiting, found, whole = [end], [], True
    known: set[int] = set()
    while waiting:
        variants = {}
        for dataset in pipeline(waiting.pop()):
            found.append(dataset)
            for function in functions(dataset):
                for captured, _ in function.graph.captures:
                    if _is_variant(captured) and id(captured) not in known:
                        variants[id(captured)] = captured
        if variants:
            known.update(variants)
            datasets = _datasets_of(set(variants))
            whole = whole and len(datasets) == len(variants)
            waiting += datasets
    return found, whole


def _is_variant(captured: Any) -> bool:
    return bool(captured.dtype.name == "variant") and hasattr(captured, "numpy")


def _datasets_of(variants: set[int]) -> list[Any]:
    import tensorflow

    by_variant = {
        id(thing._variant_tensor): thing
        for thing in gc.get_objects()
        if isinstance(thing, tensorflow.data.Dataset)
        and id(getattr(thing, "_variant_tensor", None)) in variants
    }
    return list(by_variant.values())


class PipelineVariables:
    """The variables that the functions of one pipeline change, and whether their order is fixed."""

    def __init__(self, end: Any) -> None:
        self.datasets, self._whole = with_inner(end)
        self._changed = {
            id(one): _unique(
                handle for function in functions(one) for handle in changed(function.graph)
            )
            for one in self.datasets
        }
        self.handles = _unique(handle for one in self._changed.values() for handle in one)

    def caches(self) -> list[Any]:
        """Return the datasets that cache in memory what such functions return, inner ones first."""
        return [
            one
            for one in reversed(self.datasets)
            if type(one).__name__ == "CacheDataset"
            and not caches.file_of(one)
            and any(self._changed.get(id(below)) for below in pipeline(one))
        ]

    def reasons(self) -> Iterator[str]:
        """Yield why the values do not follow from those at the start of an iterator."""
        if not self._whole:
            yield "a function of the data pipeline reads a dataset that is not accessible"
        changing = [one for one in self.datasets if self._changed[id(one)]]
        if any(type(one).__name__ in IN_PARALLEL and _parallel(one) for one in changing):
            yield "the data pipeline changes variables (a seed, say) in parallel calls"
        uses = [id(handle) for one in changing for handle in self._changed[id(one)]]
        ahead = any(type(one).__name__ in AHEAD for one in self.datasets[1:])
        if ahead and len(uses) > len(set(uses)):
            yield "several threads of the data pipeline change the same variables"
        if any(
            operation.type.startswith(TABLE_CHANGES)
            for one in self.datasets
            for function in functions(one)
            for operation in operations(function.graph)
        ):
            yield "the data pipeline changes a lookup table, which no checkpoint holds"

    def shared_with(self, graphs: Iterable[Any]) -> bool:
        """Return whether a traced step uses what the pipeline changes, or changes what it reads."""
        mine = {id(one) for one in self.handles}
        read = {
            id(handle)
            for one in self.datasets
            for function in functions(one)
            for handle, _ in function.graph.captures
        }
        return any(
            mine & {id(handle) for handle, _ in graph.captures}
            or (read and read & {id(handle) for handle in changed(graph)})
            for graph in graphs
        )


def values(handles: list[Any]) -> list[Any]:
    """Return the type, shape and bytes of each variable's value, as plain JSON values."""
    from tensorflow import raw_ops

    out = []
    for handle in handles:
        kind = dtype_of(handle)
        value = raw_ops.ReadVariableOp(resource=handle, dtype=kind).numpy()
        text = base64.b64encode(value.tobytes()).decode()
        out.append([kind.name, list(value.shape), text])
    return out


def assign(handles: list[Any], new: list[Any]) -> None:
    """Assign what ``values`` returned; does nothing if the script has other variables now."""
    import numpy as np
    from tensorflow import as_dtype, constant, raw_ops

    if [one[:2] for one in values(handles)] != [one[:2] for one in new]:
        complain("the functions of the data pipeline change other variables than before")
        return
    for handle, (kind, shape, text) in zip(handles, new, strict=True):
        flat = np.frombuffer(base64.b64decode(text), as_dtype(kind).as_numpy_dtype)
        raw_ops.AssignVariableOp(resource=handle, value=constant(flat.reshape(shape)))


def _parallel(dataset: Any) -> bool:
    """Return whether a dataset may call its function several times at once."""
    calls: Any = getattr(dataset, "_num_parallel_calls", None)
    return not hasattr(calls, "numpy") or int(calls) != 1


def _unique(handles: Iterable[Any]) -> list[Any]:
    return list({id(handle): handle for handle in handles}.values())


def dtype_of(handle: Any) -> Any:
    """Return the type of the variable of ``handle``."""
    import tensorflow

    return tensorflow.as_dtype(handle._handle_data.shape_and_type[0].dtype)
