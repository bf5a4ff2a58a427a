"""The values that a script keeps: reached from its objects, and from the globals of its modules.

Does: follows attributes, collections, closures and class values of the script's own objects down to
data, to objects that save themselves (``state_dict``), and to iterators. Objects of frameworks are
not entered. Never: runs a property, or any other code of the script but ``state_dict``.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import sys
import types
from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Any

from reshape_sidecar.hook import script_code
from reshape_sidecar.verdict import channels, forms, leaves, marks, origin
from reshape_sidecar.verdict.leaves import Kind, Leaf

CACHES = re.compile(r"cache|_memo\b|\bmemo\b", re.IGNORECASE)
"""Names that data have for what they have read before."""
OF_OPTIMIZERS = ("state", "param_groups", "defaults", "_opt_called", "step")
HOOKS_OF_OPTIMIZERS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
HOOKS_OF_MODULES = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
)
HOOKS_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")
OF_MODULES = frozenset({"training", "_parameters", "_buffers", "_modules"})
DEPTH_MAX = 16
BOUND = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)
KEYS_MAX = 8
"""Keys of a dictionary that tell whether it is by identity."""
LOADS_BY = ("dataset", "sampler", "batch_sampler", "collate_fn")
"""What a loader makes its batches with."""
LEAVES_MAX = 5000
"""Most values of one look; what is beyond is not looked at."""
OBJECTS_MAX = 100
"""Objects that a look enters of a collection with more than ``forms.ITEMS_MAX``, or of data."""
ALIAS = "another name of"
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")


class Reach:
    """One walk. Give the roots one after the other; a value counts at the first path to it."""

    def __init__(self) -> None:
        self.leaves: dict[str, Leaf] = {}
        self.owners: dict[str, Any] = {}
        """Each object that was entered, by its path."""
        self.always: set[str] = set()
        """Paths of values that a checkpoint holds, whether they have changed or not."""
        self.of_data: set[str] = set()
        """Paths of values of the data: a loader reads a batch ahead of training."""
        self.saved: set[str] = set()
        """Paths of buffers of the model, which a checkpoint holds; they are only compared."""
        self.channels: set[str] = set()
        """Paths of what gives values that another thread or process makes."""
        self._known: list[Any] = []
        """Objects that a checkpoint holds, and that are not entered."""
        self._seen: dict[int, str] = dict.fromkeys(map(id, forms.process_generators()), "")
        """The first path to each object, by its identity; empty: a checkpoint holds the object."""
        self.shapes: set[tuple[int, ...]] = set()
        """Shapes of the weights of the model."""
        self.caches: dict[str, str] = {}
        """Paths of what data keep of their samples, with the path of the data."""
        self._held: set[int] = set()
        """Where the weights of the model are in memory."""
        self._classes: set[type] = set()
        self._models: list[Any] = []
        self.names: dict[int, str] = {}
        self.objects: dict[str, Any] = {}
        """The weights and parts of the models, by names that are the same at each start."""
        self.scopes: dict[str, int] = {}
        """Where the function of a variable begins, by its path; 0: it is of a module."""
        self.partial: set[str] = set()
        """Paths of collections of which some objects were entered."""
        self.of_metrics: set[str] = set()
        """Paths of what metrics count."""
        self._is_in_data = False

    def holds(self, model: Any) -> None:
        """Leave out the weights of ``model``, under whatever name the script keeps them."""
        number = len(self._models)
        self._models.append(model)
        for name, part in model.named_modules():
            self.objects[f"part {number} {name}"] = part
            for key, tensor in forms.tensors_of(part):
                self._seen[id(tensor)] = ""
                self.shapes.add(tuple(tensor.shape))
                self._held.add(tensor.data_ptr() or id(tensor))
                self.objects[f"weight {number} {name}.{key}"] = tensor
        self._seen[id(model)] = ""
        self.names = {id(one): name for name, one in self.objects.items()}

    def know(self, *values: Any) -> None:
        """Leave out objects that a checkpoint holds already."""
        self._known += values
        self._seen |= dict.fromkeys(map(id, values), "")

    def root(
        self, path: str, value: Any, skip: Iterable[str] = (), *, of_library: bool = False
    ) -> None:
        """Enter an object of whatever class, but for the attributes ``skip``.

        of_library: look at what the frameworks' own classes set, too.
        """
        if id(value) in self._seen:
            return
        path = leaves.free(path, self.owners)
        self._seen[id(value)] = path
        if of_library:
            self.scalars(path, value)
        self._attributes(path, value, 0, frozenset(skip))

    def functions_of(self, path: str, value: Any) -> None:
        """Look at what the script's functions enclose that an object of a library was given."""
        for name, one in vars(value).items():
            if isinstance(one, (types.FunctionType, types.MethodType, functools.partial)):
                self._take(f"{path}.{name}", path, value, name, one, 1)

    def optimizer(self, optimizer: Any) -> None:
        """Look at an optimizer's own attributes, and at the tensors that it trains and no model
        holds; these always count, and their gradients too: a library clears those of its model."""
        self.root(type(optimizer).__name__, optimizer, OF_OPTIMIZERS)
        self._hooks(type(optimizer).__name__, optimizer, HOOKS_OF_OPTIMIZERS)
        for number, group in enumerate(optimizer.param_groups):
            for place, tensor in enumerate(group["params"]):
                if not self._is_held(tensor):
                    path = f"weight {place} of the optimizer's group {number}"
                    self._leaf(path, Kind.DATA, tensor, "", None, None)
                    self._leaf(f"{path}, gradient", Kind.DATA, tensor.grad, path, tensor, "grad")
                    self.owners[path] = tensor
                    self.always |= {path, f"{path}, gradient"}

    def take(self, path: str, owner_path: str, owner: Any, key: Any, value: Any) -> None:
        """Look at ``value``, which ``owner`` holds by ``key``."""
        self.owners.setdefault(owner_path, owner)
        self._take(path, owner_path, owner, key, value, 0)

    def data(self, path: str, owner: Any, key: str, *, is_ahead: bool = True) -> None:
        """Look at an attribute of ``owner`` that is data, or that makes batches of it.

        is_ahead: whether its loader reads a batch before training asks for it.
        """
        before, self._is_in_data = set(self.leaves), True
        self.take(path, f"owner of {path}", owner, key, getattr(owner, key, None))
        self._is_in_data = False
        for found in self.leaves.keys() - before:
            is_code = self.leaves[found].kind is Kind.CODE
            if not is_code and CACHES.search(
                found.rpartition(".")[2]
            ):  # it only spares that a sample is read again
                self.caches[found] = path
                del self.leaves[found]
            elif is_ahead:
                self.of_data.add(found)

    def scalars(self, path: str, value: Any) -> None:
        """Look at the numbers and texts among the attributes of an object of a framework."""
        self.owners[path] = value
        for name, one in list(vars(value).items()):
            if type(one) in forms.PLAIN and not name.startswith("_") and name not in OF_MODULES:
                self._leaf(f"{path}.{name}", Kind.DATA, one, path, value, name)

    def model(self, path: str, model: Any) -> None:
        """Look at what a model and its parts keep beside their weights."""
        hooks = 0
        kinds: list[str] = []
        at_rest: list[str] = []
        functions: list[str] = []
        weights: list[str] = []
        for name, part in model.named_modules():
            own = f"{path}.{name}" if name else path
            kinds.append(type(part).__name__)
            if not part.training:
                at_rest.append(name)
            functions += [f"{name}.{one}" for one in origin.functions_set(part)]
            self._module(own, part)
            hooks += self._hooks(own, part, HOOKS_OF_MODULES)
            for key, tensor in forms.tensors_of(part):
                weights.append(f"{name}.{key}")
                self._hooks(f"{own}.{key}", tensor, HOOKS_OF_TENSORS)
                self._attributes_of(f"{own}.{key}", tensor)
        self._leaf(f"{path} (hooks)", Kind.OPAQUE, hooks, "", None, None)
        self._text(f"{path} (kinds of parts)", kinds)
        self._text(f"{path} (names of weights)", weights)
        self._text(f"{path} (functions)", functions)
        if model.training:
            self._text(f"{path} (parts in evaluation mode)", at_rest)

    def _attributes_of(self, path: str, tensor: Any) -> None:
        """Look at the attributes that a script has set on a tensor."""
        self.owners[f"{path} (attributes)"] = tensor
        for key, value in list(vars(tensor).items()):
            if not key.startswith("_"):
                self._take(f"{path}.{key}", f"{path} (attributes)", tensor, key, value, 1)

    def schedules(self, schedules: Iterable[Any]) -> None:
        """Look at what the functions of schedules enclose, and of those in them."""
        every = (one for value in schedules for one in (value, *getattr(value, "_schedulers", ())))
        for number, one in enumerate(every):
            for place, function in enumerate(getattr(one, "lr_lambdas", ())):
                self._take(f"rate {place} of schedule {number}", "", None, None, function, 1)

    def buffers(self, path: str, model: Any) -> None:
        """Compare the buffers of the model, but for those of BatchNorm: what the forward pass
        writes there is of the samples that it sees."""
        library: Any = forms.torch()
        for name, part in model.named_modules():
            if not isinstance(part, library.nn.modules.batchnorm._BatchNorm):
                for key, buffer in part.named_buffers(recurse=False):
                    own = ".".join(filter(None, (path, name, key)))
                    if own not in self.leaves:
                        self._leaf(own, Kind.DATA, buffer, "", None, None)
                        self.saved.add(own)

    def _hooks(self, path: str, owner: Any, names: Iterable[str]) -> int:
        """Look at what the script's hooks hold; return how many are the script's."""
        count = 0
        for name in names:
            for number, hook in enumerate(list((getattr(owner, name, None) or {}).values())):
                self._take(f"{path} ({name.strip('_')} {number})", "", None, None, hook, 1)
                count += any(script_code.functions_in(hook))
        return count

    def script(self, skip: Iterable[str] = ()) -> None:
        """Look at the globals of the script and of modules beside it, but for ``skip``."""
        left_out = frozenset(skip)
        self.owners["os.environ"] = os.environ
        for name in sorted(set(os.environ) & origin.words_of_script(len(sys.modules))):
            path = f"os.environ[{name!r}]"
            self._leaf(path, Kind.DATA, os.environ[name], "os.environ", os.environ, name)
        for path, owner, key in origin.patched_by_script(len(sys.modules)):
            space = vars(owner)
            holder = owner if isinstance(owner, type) else space  # that of a class is read alone
            self.owners[f"module {owner.__name__}"] = holder
            self._take(path, f"module {owner.__name__}", holder, key, space.get(key), 1)
        modules = sys.modules.get("torch.nn.modules.module")
        self._hooks("all modules", modules, GLOBAL_HOOKS)
        self._text("settings of PyTorch", origin.settings_of_torch())
        for number, mode in enumerate(origin.modes_of_torch()):
            self._take(f"mode {number} of PyTorch", "", None, None, mode, 1)
        for name, module in origin.modules_of_script(len(sys.modules)):
            prefix = "" if name == "__main__" else f"{name}."
            space = vars(module)
            self.owners[f"module {name}"] = space
            for key, value in list(space.items()):
                if not key.startswith("__") and key not in left_out:
                    self._take(f"{prefix}{key}", f"module {name}", space, key, value, 1)

    # -- one value --------------------------------------------------------------------------------

    def _take(
        self, path: str, owner_path: str, owner: Any, key: Any, value: Any, depth: int
    ) -> None:
        if len(self.leaves) >= LEAVES_MAX:
            raise OverflowError(f"more than {LEAVES_MAX} values")
        if depth > DEPTH_MAX:
            return
        if type(value) in forms.PLAIN or isinstance(value, Enum):
            self._leaf(path, Kind.DATA, value, owner_path, owner, key)
            return
        if forms.is_loader(value):
            batches = (value.batch_size, value.drop_last, type(value.sampler).__name__)
            self._text(f"{path} (batches)", [str(one) for one in batches])
        if (known := self._seen.get(id(value))) is not None:
            if known and forms.is_data(value, self.names):
                self._leaf(path, Kind.DATA, value, owner_path, owner, key, same_as=known)
            elif known and not isinstance(value, types.ModuleType | type):
                self._text(path, [ALIAS, known])
            elif not known and origin.saves_itself(value) and not forms.is_module(value):
                self._text(path, origin.kind_of(value))  # an optimizer or a schedule in training
            return
        self._seen[id(value)] = path
        if forms.is_tensor(value) and self._is_held(value):
            return
        if self._is_by_identity(value):
            self.items(path, value, depth, by_identity=True)
        elif forms.is_data(value, self.names) and not self._has_weights(value):
            self._leaf(path, Kind.DATA, value, owner_path, owner, key)
            if forms.is_tensor(value):
                self._attributes_of(path, value)
        elif isinstance(value, (list, tuple, dict, deque)):
            self.items(path, value, depth)
        elif forms.is_module(value):
            if tensors := self._own_tensors(value):
                self._leaf(path, Kind.STATE, forms.Tensors(value, tensors), owner_path, owner, key)
            elif owner is not None:
                self._leaf(f"{path} (kind)", Kind.CODE, type(value), owner_path, owner, key)
            self.model(path, value)
        elif origin.saves_itself(value) and not forms.is_loader(value):
            self._leaf(path, Kind.STATE, value, owner_path, owner, key)
            if script_code.of_script(type(value)):  # its state may leave some of it out
                self._attributes(path, value, depth, frozenset())
        elif origin.is_iterator(value) or type(value).__name__ == leaves.EAGER_TENSOR:
            self._leaf(path, Kind.OPAQUE, value, owner_path, owner, key)
            if origin.is_open(value):
                self._attributes(path, value, depth, frozenset())
        else:
            self._follow(path, value, depth)

    def _leaf(
        self,
        path: str,
        kind: Kind,
        value: Any,
        owner_path: str,
        owner: Any,
        key: Any,
        *,
        same_as: str = "",
    ) -> None:
        path = leaves.free(path, self.leaves)
        self.leaves[path] = Leaf(path, kind, value, owner_path, owner, key, same_as)

    def _is_held(self, tensor: Any) -> bool:
        try:
            return tensor.data_ptr() in self._held
        except RuntimeError:  # a tensor without storage
            return False

    def _own_tensors(self, module: Any) -> tuple[str, ...]:
        """Return the names in a module's state of what is no weight of the model."""
        state = module.state_dict(keep_vars=True)
        return tuple(
            name for name, one in state.items() if forms.is_tensor(one) and not self._is_held(one)
        )

    def _has_weights(self, value: Any) -> bool:
        if not isinstance(value, (list, tuple, dict)):
            return False
        items = value.values() if isinstance(value, dict) else value
        return any(
            forms.is_tensor(one) and self._is_held(one)
            for one in itertools.islice(items, forms.ITEMS_MAX)
        )

    def _is_by_identity(self, value: Any) -> bool:
        """Return whether keys of a dictionary are the identities of objects of this process, and
        not those of the models alone, which have names."""
        if type(value) not in forms.MAPPINGS:
            return False
        if all(type(key) is int and key in self.names for key in value):
            return False
        return any(
            type(key) is int and key in self._seen for key in itertools.islice(value, KEYS_MAX)
        )

    def items(self, path: str, value: Any, depth: int = 0, *, by_identity: bool = False) -> None:
        """Look at the length of a collection and at each of its items.

        by_identity: its keys mean nothing in another process, so an item has its place alone.
        """
        self.owners[path] = value
        self._leaf(f"{path} (length)", Kind.OPAQUE, len(value), path, value, None)
        pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
        if len(pairs) > (OBJECTS_MAX if self._is_in_data else forms.ITEMS_MAX):
            pairs = pairs[:: -(-len(pairs) // OBJECTS_MAX)]
            self.partial.add(path)
        for place, (key, one) in enumerate(pairs):
            if by_identity:
                self._take(f"{path}[object {place}]", "", None, None, one, depth + 1)
                continue
            shown = repr(key) if type(key) in forms.PLAIN else type(key).__name__
            self._take(f"{path}[{shown}]", path, value, key, one, depth + 1)

    def _follow(self, path: str, value: Any, depth: int) -> None:
        """Follow code to the values that it holds, and enter objects that are open."""
        if isinstance(value, BOUND):
            if not isinstance(value.__self__, (types.ModuleType, type)):
                self._take(path, "", None, None, value.__self__, depth + 1)
        elif isinstance(value, functools.partial):
            for key, one in (*enumerate(value.args), *value.keywords.items()):
                self._take(f"{path}({key})", "", None, None, one, depth + 1)
        elif isinstance(value, types.FunctionType):
            self._leaf(f"{path} (function)", Kind.CODE, value, "", None, None)
            self._function(path, value, depth)
        elif isinstance(value, type):
            self._class(value, depth)
        elif isinstance(value, functools._lru_cache_wrapper):
            if script_code.of_script(value.__wrapped__) and not script_code.is_pure(
                value.__wrapped__
            ):
                self._leaf(f"{path} (cache)", Kind.OPAQUE, value, "", None, None)
            self._take(path, "", None, None, value.__wrapped__, depth + 1)
        else:
            if channels.is_channel(value, path):
                self.channels.add(path)
            if marks.reader_of(value) is not None:
                self._leaf(path, Kind.OPAQUE, value, "", None, None)
            if origin.is_open(value):
                self._attributes(path, value, depth, frozenset())
            elif forms.is_loader(value):
                for part in LOADS_BY:
                    self._take(f"{path}.{part}", "", None, None, getattr(value, part, None), depth)
            else:
                self.set_by_script(path, value, depth)

    def set_by_script(self, path: str, value: Any, depth: int = 0) -> None:
        """Look at the attributes of a library's object that the script's code sets on objects."""
        own = getattr(value, "__dict__", {})
        for name in sorted(origin.attributes_of_others(len(sys.modules)) & own.keys()):
            self.owners[path] = value
            self._take(f"{path}.{name}", path, value, name, own[name], depth + 1)

    def place(self, path: str, value: Any) -> None:
        """Look at a value that no start can be given."""
        self._leaf(
            path, Kind.OPAQUE, value if type(value) is int else repr(type(value)), "", None, None
        )

    def kinds(self, path: str, values: Iterable[Any]) -> None:
        """Look at the classes of some objects, such as the callbacks."""
        self._text(path, [type(one).__qualname__ for one in values])

    def same(self, path: str, values: Iterable[Any]) -> None:
        """Look whether objects that a checkpoint holds are replaced by others."""
        self._text(path, [str(id(one)) for one in values])

    def _text(self, path: str, words: list[str]) -> None:
        """Look at what cannot come back: it matters if it becomes another one."""
        self._leaf(path, Kind.CODE, " ".join(words), "", None, None)

    def _function(self, path: str, function: types.FunctionType, depth: int) -> None:
        if not script_code.of_script(function):
            return
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a cell without a value yet
                self.owners[f"{path}.{name} (closure)"] = cell
                self._take(
                    f"{path}.{name}",
                    f"{path}.{name} (closure)",
                    cell,
                    "",
                    cell.cell_contents,
                    depth + 1,
                )
        for one in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            if type(one) not in forms.PLAIN:
                self._take(f"a default of {function.__name__}", "", None, None, one, depth + 1)
        if vars(function):
            self._attributes(path, function, depth, frozenset({"__wrapped__"}))

    def _class(self, kind: type, depth: int) -> None:
        if kind in self._classes:
            return
        self._classes.add(kind)
        for place in script_code.class_values(kind):
            if not isinstance(place.value(), (types.FunctionType, type)):
                owner_path = f"class {place.owner.__name__}"
                self.owners[owner_path] = place.owner
                path, value = f"{place.name} (class)", place.value()
                self._take(path, owner_path, place.owner, place.key, value, depth + 1)
        for name, value in vars(kind).items():
            if script_code.of_script(type(value)) and hasattr(type(value), "__get__"):
                self._take(f"{kind.__name__}.{name} (class)", "", None, None, value, depth + 1)
        own = [function.__code__ for function in script_code.methods(kind)]
        self._text(
            f"{kind.__name__} (methods)",
            [f"{code.co_qualname} {code.co_firstlineno}" for code in own],
        )
        for function in script_code.methods(kind):
            self._function(function.__qualname__, function, depth)

    def _attributes(self, path: str, value: Any, depth: int, skip: frozenset[str]) -> None:
        kind: type = type(value)
        skip |= origin.names_of_library(kind) | origin.names_of_moment(kind)
        if kind.__module__.startswith(origin.DATA_PACKAGE):
            skip |= {name for name in vars(value) if name.startswith("_")}
        self.owners[path] = value
        self._leaf(f"{path} (type)", Kind.CODE, kind, "", None, None)
        self._class(kind, depth)
        for name, one in list(script_code.attributes(value).items()):
            if name not in skip and not name.startswith("__"):
                self._take(f"{path}.{name}", path, value, name, one, depth + 1)

    def _module(self, path: str, part: Any) -> None:
        for name in part._non_persistent_buffers_set:
            if (buffer := part._buffers.get(name)) is not None:
                self.owners[f"{path} (buffers)"] = part._buffers
                self._leaf(
                    f"{path}.{name}", Kind.DATA, buffer, f"{path} (buffers)", part._buffers, name
                )
        if origin.root_of(type(part)) == "torchmetrics":
            for name in getattr(part, "_defaults", ()):  # its own state leaves them out
                self._leaf(f"{path} ({name})", Kind.DATA, getattr(part, name), "", None, None)
                self.of_metrics.add(f"{path} ({name})")
        elif origin.root_of(type(part)) in origin.CLOSED:
            self.scalars(path, part)
            self.set_by_script(path, part, 1)
        else:
            self._seen[id(part)] = path
            self._attributes(path, part, 1, OF_MODULES)
