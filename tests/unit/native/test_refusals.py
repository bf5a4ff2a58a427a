"""What is not translated is refused, with its line and a remedy."""

from __future__ import annotations

import pytest

from native.module import translate
from native.source import Refused
from tests.unit.native.samples import HEAD

LINE = len(HEAD.splitlines())
VALUE = "@dataclass(frozen=True)\nclass Value:\n"
REFUSED = [
    ("@dataclass(order=True)\nclass V:\n    x: int\n", 1, "dataclass(order=...)"),
    ("@dataclass(kw_only=True)\nclass V:\n    x: int\n", 1, "dataclass(kw_only=...)"),
    ("@dataclass(**HOW)\nclass V:\n    x: int\n", 1, "dataclass(**=...)"),
    ("@dataclass(frozen=YES)\nclass V:\n    x: int\n", 1, "frozen= is computed"),
    ("@dataclass\nclass V(Other):\n    x: int\n", 2, "V is a dataclass with bases"),
    ("@dataclass\nclass V(metaclass=M):\n    x: int\n", 2, "V is a dataclass with bases"),
    ("@final\n@dataclass\nclass V:\n    x: int\n", 3, "V has another decorator"),
    (f"{VALUE}    def __init__(self) -> None: ...\n", 2, "Value has __init__"),
    (f"{VALUE}    def __reduce__(self) -> None: ...\n", 2, "Value has __reduce__"),
    (f"{VALUE}    x: ClassVar[int] = 3\n", 3, "ClassVar[int] is not translated"),
    (f"{VALUE}    x: typing.ClassVar[int] = 3\n", 3, "typing.ClassVar[int] is not translated"),
    (f"{VALUE}    x: InitVar[int]\n", 3, "InitVar[int] is not translated"),
    (f"{VALUE}    _: KW_ONLY\n", 3, "KW_ONLY is not translated"),
    (f"{VALUE}    x: Final = 3\n", 3, "Final is not translated"),
    (f"{VALUE}    x: 'int'\n", 3, "the annotation 'int' is a text"),
    (f"{VALUE}    x.y: int\n", 3, "no plain name is annotated"),
    (f"{VALUE}    x: int = field(metadata={{}})\n", 3, "field(metadata=...)"),
    (f"{VALUE}    x: int = field(**HOW)\n", 3, "field(**=...)"),
    (f"{VALUE}    x: int = field(init=SAID, default=1)\n", 3, "init= is computed"),
    (f"{VALUE}    x: int = dataclasses.field(default=1)\n", 3, "dataclasses.field has a dot"),
    (f"{VALUE}    x: list[int] | None = field(default_factory=list)\n", 3, "x may be None"),
    (f"{VALUE}    x: Optional[int] = field(default_factory=int)\n", 3, "x may be None"),
    (f"{VALUE}    x: int = 1\n    y: int = x\n", 4, "a default has the name of a field"),
    ("class C:\n    @dataclass\n    class V:\n        x: int\n", 2, "dataclass is hidden in here"),
    ("def f() -> None:\n    @dataclass\n    class V:\n        x: int\n", 2, "dataclass is hidden"),
    ("if True:\n    @dataclass\n    class V:\n        x: int\n", 2, "dataclass is hidden in here"),
    ("@dataclasses.dataclass\nclass V:\n    x: int\n", 1, "dataclasses.dataclass has a dot"),
    ("from dataclasses import dataclass as d\n", 1, "dataclass is renamed"),
    ("from functools import cached_property as c\n", 1, "cached_property is renamed"),
    ("def f(v: V) -> V:\n    return replace(v)\n", 2, "replace without one value and fields"),
    ("def f(v: V) -> V:\n    return replace(*v, x=1)\n", 2, "replace without one value and fields"),
    ("copies = map(replace, [])\n", 1, "replace is not called here"),
    ("class C:\n    @cached_property\n    def x(self): ...\n", 3, "x has no type"),
    ("class C:\n    @cached_property\n    def x(self) -> int | None: ...\n", 3, "x may be None"),
    (
        "class C:\n    @final\n    @cached_property\n    def x(self) -> int: ...\n",
        4,
        "x has another",
    ),
]


@pytest.mark.parametrize(("text", "line", "what"), REFUSED)
def test_it_is_refused_with_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(Refused) as refusal:
        translate(HEAD + text, "sample/module.py")
    said = str(refusal.value)
    assert said.startswith(f"sample/module.py:{LINE + line}: {what}")
    assert said.partition("; ")[2], "no remedy is named"


def test_without_postponed_annotations_nothing_is_translated() -> None:
    text = "from dataclasses import dataclass\n@dataclass\nclass V:\n    x: int\n"
    with pytest.raises(Refused, match="no postponed annotations"):
        translate(text, "sample/module.py")


def test_a_module_without_any_of_it_stays_as_it_is() -> None:
    text = "import math  # ä\n\n\nclass Kept(Exception):\n    pass\n"
    assert translate(text, "sample/module.py") == text
