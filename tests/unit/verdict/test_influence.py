"""Names that reach training are told from names that are only printed, logged or saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_sidecar.verdict import influence

BODIES: dict[str, tuple[str, str, bool]] = {
    "a sum that is printed": ("total", "total += loss.item()\nprint(total / 3)", False),
    "a history": ("losses", "losses.append(loss.item())\njson.dump(losses, f)", False),
    "a meter": (
        ".avg",
        "class Meter:\n  def update(self, v):\n    self.sum += v\n    self.avg = self.sum\n"
        "m = Meter()\nm.update(x.sum())\nprint(m.avg)",
        False,
    ),
    "an argument among others": (
        "k",
        "k = 1\nn = 3\nstep(n)\ndef result(**given): print(given)\nresult(n=k)",
        False,
    ),
    "a property": (
        "k",
        "k = 1\nclass A:\n  @property\n  def avg(self): return k\nprint(A().avg)",
        False,
    ),
    "a property that a step reads": (
        "k",
        "k = 1\nclass A:\n  @property\n  def avg(self): return k\nstep(A().avg)",
        True,
    ),
    "a factor of the loss": (
        "scale",
        "scale *= 0.9\nloss = model(x) * scale\nloss.backward()",
        True,
    ),
    "a factor by another name": ("k", "k += 1\nw = k / 9\nl = f(x) * w\nl.backward()", True),
    "a test around a step": ("best", "best = min(best, v)\nif v > best: optimizer.step()", True),
    "a test around an output": ("n", "n += 1\nif n % 9 == 0: print(n)", False),
    "a learning rate": ("rate", "rate /= 2\nfor g in o.param_groups: g['lr'] = rate", True),
    "what a hook of a library returns": ("k", "k = 1\ndef compute_loss(m): return m * k", True),
    "what an event returns": ("k", "k = 1\ndef on_log(m): return k", False),
    "what a called function returns": ("k", "k = 1\ndef f(): return k\nf().backward()", True),
    "what a called function prints": ("k", "k = 1\ndef f(): return k\nprint(f())", False),
    "an argument": ("k", "k = 1\ndef f(a): step(a)\nf(k)", True),
    "an option by its name": ("k", "k = 1\ndef f(a=0): step(a)\nf(a=k)", True),
    "a length of a loop": ("n", "n = 3\nfor i in range(n): step(i)", True),
    "a condition of an end": ("wait", "wait += 1\nif wait > 3: raise SystemExit", True),
    "an attribute that is called": (
        "crit",
        "self.crit = f\nloss = self.crit(x)\nloss.backward()",
        True,
    ),
    "an attribute that is called as a variable is": (
        ".val",
        "self.val = x.sum()\nprint(self.val)\nval = loader()\nfor b in val: step(b)",
        False,
    ),
    "a variable that is called as an attribute is": (
        "val",
        "self.val = x.sum()\nprint(self.val)\nval = loader()\nfor b in val: step(b)",
        True,
    ),
    "a history by name": (
        "total",
        "total += loss.item()\nhistory['loss'].append(total)\nloss.backward()",
        False,
    ),
    "what is shown as a text": (
        "k",
        "k = 1\nclass A:\n  def __str__(self): return str(k)\nprint(A())",
        False,
    ),
    "counts by index": ("seen", "seen = zeros(4)\nnp.add.at(seen, y, 1)\nprint(seen)", False),
    "a metric": (
        ".acc",
        "from torchmetrics import Accuracy\nself.acc = Accuracy()\nself.acc(z, y)\n"
        "self.log('acc', self.acc)",
        False,
    ),
    "a metric that scales a loss": (
        ".acc",
        "from torchmetrics import Accuracy\nself.acc = Accuracy()\nself.acc(z, y)\n"
        "loss = f(x) * self.acc.compute()\nloss.backward()",
        True,
    ),
    "the best of what is saved": ("best", "if v > best:\n  best = v\n  torch.save(m, f)", False),
    "the best of what is saved and loaded": (
        "best",
        "if v > best:\n  best = v\n  torch.save(m, f)\nm.load_state_dict(torch.load(f))",
        True,
    ),
    "a name that no text sets": ("unknown", "print(1)", True),
}


@pytest.mark.parametrize("kind", BODIES)
def test_steering(kind: str, tmp_path: Path) -> None:
    name, text, wanted = BODIES[kind]
    file = tmp_path / "script.py"
    file.write_text(text)
    assert influence.steers(name, [str(file)]) is wanted


def test_what_decides_what_is_saved_is_told_from_what_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("if v > best:\n  best = v\n  torch.save(m, f)\nprint(mean)\nmean = 1")
    assert influence.decides_saves("best", [str(file)])
    assert not influence.decides_saves("mean", [str(file)])


def test_a_moment_is_told_from_a_value_that_is_called_now(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("start = time.time()\nlast = start\nnow = train()\nrate = now * 2")
    told = [
        one for one in ("start", "last", "now", "rate") if influence.tells_time(one, [str(file)])
    ]
    assert told == ["start", "last"]


def test_a_text_that_cannot_be_read_steers(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("total += (")
    assert influence.steers("total", [str(file)])
    assert influence.steers("total", [str(tmp_path / "absent.py")])
