"""Files from which a script goes on, and which each start of it writes again, are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_sidecar.verdict import rewritten

LOOP = "for epoch in job.epochs(3):\n  for x in job.batches(data): step(x)\n"
BETTER = "  if acc > best: torch.save(model, best_path)\n"
LOAD = "model.load(torch.load(best_path))\n"

SCRIPTS: dict[str, tuple[str, set[str]]] = {
    "the first weights as the best ones": (
        "torch.save(model, best_path)\n" + LOOP + BETTER + LOAD,
        {"best_path"},
    ),
    "a file that is written if it is not there": (
        "if not exists(best_path): torch.save(model, best_path)\n" + LOOP + BETTER + LOAD,
        set(),
    ),
    "a file that nothing reads": ("torch.save(model, best_path)\n" + LOOP + BETTER, set()),
    "a file that training alone writes": (LOOP + BETTER + LOAD, set()),
    "a file that the end writes": (LOOP + BETTER + "torch.save(model, best_path)\n" + LOAD, set()),
    "a file that each epoch writes": (
        "torch.save(model, best_path)\n" + LOOP + "  torch.save(model, best_path)\n" + LOAD,
        set(),
    ),
    "an object that saves": (
        "class Best:\n  def save(self, m): torch.save(m, self.path)\n"
        "  def __call__(self, acc, m):\n    if acc > self.acc: self.save(m)\n"
        "best = Best()\nbest.save(model)\n" + LOOP + "  best(acc, model)\n"
        "model.load(torch.load(best.path))",
        {"self.path"},
    ),
    "a folder of each start": (
        "with TemporaryDirectory() as folder:\n  best_path = join(folder, 'best.pt')\n"
        + "".join(f"  {line}\n" for line in (LOOP + BETTER + LOAD).splitlines()),
        {"best_path"},
    ),
    "a callback of a Trainer": (
        "json.dump(0, open('best.json', 'w'))\nclass Own:\n  def on_evaluate(self):\n"
        "    if acc > json.load(open('best.json')): json.dump(acc, open('best.json', 'w'))\n"
        "trainer.train()",
        {"'best.json'"},
    ),
}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_files_that_each_start_writes_again(kind: str, tmp_path: Path) -> None:
    text, wanted = SCRIPTS[kind]
    file = tmp_path / "script.py"
    file.write_text(text)
    assert rewritten.paths([str(file)]) == wanted
