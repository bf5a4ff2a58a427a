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
    "metrics that a function makes": (
        ".tr",
        "import torchmetrics as tm\nmk = lambda p: tm.MetricCollection({'acc': tm.Accuracy()})\n"
        "self.tr, self.va = mk('a'), mk('b')\nself.tr(z, y)\nself.tr.reset()",
        False,
    ),
    "what an assigned call does in place": (
        "clip",
        "norm = clip_grad_norm_(net.parameters(), clip)\nclip = 0.9 * clip + 0.1 * norm",
        True,
    ),
    "what an assigned step uses": ("k", "k += 1\nloss = optimizer.step(k)", True),
    "a place in what a loss reads": (
        "at",
        "bank[at] = v\nat = at + 1\nloss = f(x) * bank.mean()\nloss.backward()",
        True,
    ),
    "a place in what is printed": ("at", "bank[at] = v\nat = at + 1\nprint(bank)", False),
    "a weight that a loop changes by hand": (
        "rate",
        "for w in model.parameters(): w -= rate * w.grad\nrate *= 0.9\nmodel(x).backward()",
        True,
    ),
    "a factor in a case": (
        "k",
        "match phase:\n  case 'warm': loss = z * k\n  case _: loss = z\nk *= 0.9\nloss.backward()",
        True,
    ),
    "what a match asks": (
        "phase",
        "phase = 'warm'\nmatch phase:\n  case 'warm': loss = z * 3\nloss.backward()",
        True,
    ),
    "a default of a function": (
        "s",
        "s *= 0.9\ndef weigh(v, by=s): return v * by\nweigh(loss).backward()",
        True,
    ),
    "what is given to a function by another name": (
        "k",
        "k += 1\ndef update(v): optimizer.step(v)\ngo = update\nout = go(k)",
        True,
    ),
    "an attribute that is looked up by a text": (
        ".warmth",
        "self.warmth *= 0.9\nloss = z / getattr(self, 'warmth')\nloss.backward()",
        True,
    ),
    "a count within a test": (
        "n",
        "loss = z * 0.3 if (n := n + 1) > 30 else z\nloss.backward()",
        True,
    ),
    "what a hook only keeps": (
        ".seen",
        "self.seen = {}\npart.register_forward_hook(lambda m, i, o: self.seen.update(b=o))",
        False,
    ),
    "what ends an epoch of Lightning": (
        ".bad",
        "self.bad += 1\ndef on_train_batch_start(self): return -1 if self.bad > 3 else None",
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


def test_a_count_beside_a_moment_is_no_moment(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("took, n = time.time() - start, n + 1")
    assert influence.tells_time("took", [str(file)])
    assert not influence.tells_time("n", [str(file)])


def test_a_value_that_is_made_from_the_number_of_gpus_is_known(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(
        "world = dist.get_world_size()\nbase = 0.01 * world\n"
        "class Warm:\n  def __init__(self, top): self.top = top\n"
        "warm = Warm(base)\nother = 0.1\n"
    )
    names = ("base", ".top", "other")
    assert [influence.follows_ranks(name, [str(file)]) for name in names] == [True, True, False]


def test_a_text_that_cannot_be_read_steers(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("total += (")
    assert influence.steers("total", [str(file)])
    assert influence.steers("total", [str(tmp_path / "absent.py")])


def test_a_variable_of_a_function_is_told_from_those_of_others(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(
        "n = 0\ndef make(n=3): step(n)\nmake()\n"
        "def train():\n  n = 0\n  def count():\n    nonlocal n\n    n += 1\n  count()\n  print(n)\n"
        "n += 1\nprint(n)\n"
    )
    names = ("n@2", "n@4", "n@0", "n@99", "n")
    assert [influence.steers(name, [str(file)]) for name in names] == [
        *(True, False, False),
        *(True, True),
    ]
