"""What each step sets before it reads it is told from what it reads of the step before."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_sidecar.verdict import order

LAYER = "class Layer:\n  def forward(self, x):\n    self.aux = x.mean()\n    return x\n"
NET = LAYER + "class Net:\n  def __init__(self):\n    self.a, self.b = Layer(), Layer()\n"
HOOK = "feats = {}\ndef hook(m, i, o): feats['a'] = o\nmodel.a.register_forward_hook(hook)\n"

BODIES: dict[str, tuple[str, str, bool]] = {
    "a loss of the same pass": (
        ".aux",
        NET + "  def forward(self, x):\n    z = self.a(x)\n    return z + self.a.aux",
        True,
    ),
    "one that is read before the layer runs": (
        ".aux",
        NET + "  def forward(self, x):\n    z = self.b(x)\n    return self.a(z * self.a.aux)",
        False,
    ),
    "one that the layer itself adds to": (
        ".aux",
        LAYER.replace("x.mean()", "0.9 * self.aux + x.mean()") + "z = net(x)\nprint(net.aux)",
        False,
    ),
    "one that some passes set": (
        ".aux",
        LAYER.replace("self.aux =", "if x.any(): self.aux =") + "z = net(x)\nloss = z + net.aux",
        False,
    ),
    "of the whole model in parallel": (
        ".aux",
        NET + "net = DDP(model)\nfor x in batches:\n  z = net(x)\n  loss = z + model.a.aux",
        True,
    ),
    "of the step before": (
        ".aux",
        NET + "for x in batches:\n  w = model.a.aux\n  loss = model(x) * w",
        False,
    ),
    "of all layers of a list": (
        ".aux",
        NET + "  def forward(self, x):\n    for one in self.parts: x = one(x)\n"
        "    return x + sum(one.aux for one in self.parts)",
        True,
    ),
    "of layers that a loop may skip": (
        ".aux",
        NET + "  def forward(self, x):\n    for one in self.parts:\n      if skip(): continue\n"
        "      x = one(x)\n    return x + sum(one.aux for one in self.parts)",
        False,
    ),
    "of all modules, in a function": (
        ".aux",
        NET + "def penalty(net): return sum(m.aux for m in net.modules())\n"
        "for x in batches:\n  z = model(x)\n  loss = z + penalty(model)",
        True,
    ),
    "of all modules, in a function that is called too early": (
        ".aux",
        NET + "def penalty(net): return sum(m.aux for m in net.modules())\n"
        "for x in batches:\n  w = penalty(model)\n  z = model(x)\n  loss = z * w",
        False,
    ),
    "at the end of an epoch": (
        ".aux",
        NET + "  def on_train_epoch_start(self):\n    self.rate = self.a.aux",
        False,
    ),
    "that an output shows at another time": (
        ".aux",
        NET + "  def forward(self, x): return self.a(x) + self.b(x) * self.a.aux\n"
        "  def on_train_epoch_end(self): self.log('aux', self.a.aux)",
        True,
    ),
    "features of a hook": (
        "feats",
        HOOK + "for x in batches:\n  z = model(x)\n  loss = z + feats['a']",
        True,
    ),
    "features of a part by its number": (
        "feats",
        HOOK.replace("model.a", "model[0]")
        + "for x in batches:\n  z = model(x)\n  loss = z + feats['a']",
        True,
    ),
    "features of the step before": (
        "feats",
        HOOK + "for x in batches:\n  old = feats['a']\n  loss = model(x) + old",
        False,
    ),
    "features of a hook that a function makes": (
        "feats",
        "feats = {}\ndef get(name):\n  def hook(m, i, o): feats[name] = o\n  return hook\n"
        "model.a.register_forward_hook(get('a'))\n"
        "for x in batches:\n  z = model(x)\n  loss = z + feats['a']",
        True,
    ),
    "what a hook collects": (
        "feats",
        HOOK.replace("feats['a'] = o", "feats.setdefault('a', []).append(o)")
        + "for x in batches:\n  z = model(x)\n  loss = z + feats['a'][0]",
        False,
    ),
    "an attribute that a text sets by its name": (
        ".aux",
        NET + "setattr(model.a, 'aux', 3)\nfor x in batches:\n  z = model(x) + model.a.aux",
        False,
    ),
}


@pytest.mark.parametrize("kind", BODIES)
def test_what_a_step_sets_first(kind: str, tmp_path: Path) -> None:
    name, text, wanted = BODIES[kind]
    file = tmp_path / "script.py"
    file.write_text(text)
    assert order.is_set_first(name, [str(file)]) is wanted
    assert order.is_set_first(f"{name}@0", [str(file)]) is wanted


def test_a_text_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    assert not order.is_set_first(".aux", [str(tmp_path / "absent.py")])
