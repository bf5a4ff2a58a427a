"""What decides in a replay is what decides live, and cannot tell the two apart."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

import pytest

from reshape_controller.core.engine import Engine, Step
from reshape_controller.core.events import Event
from reshape_controller.core.plan import Plan
from reshape_sidecar import codec
from tests.support.replay_bed import job, run, scene

CONTROLLER = Path(__file__).resolve().parents[2] / "controller" / "reshape_controller"


def names(path: Path) -> set[str]:
    """Every name in the code of a module; words in texts and comments are not among them."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return {token.string.lower() for token in tokens if token.type == tokenize.NAME}


def test_the_deciding_code_has_no_name_of_the_replay_in_it() -> None:
    modules = [
        path for folder in ("core", "policies") for path in (CONTROLLER / folder).rglob("*.py")
    ]
    assert len(modules) > 20
    found = {path.name: name for path in modules for name in names(path) if "replay" in name}
    assert found == {}


def test_a_replays_events_and_plans_give_the_same_commands_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As recovery does live: the log alone brings an engine to the same state."""
    log: list[tuple[Event | Plan, float, Step]] = []
    step, apply = Engine.step, Engine.apply

    def stepped(self: Engine, event: Event, now_s: float) -> Step:
        log.append((event, now_s, step(self, event, now_s)))
        return log[-1][2]

    def applied(self: Engine, plan: Plan, now_s: float) -> Step:
        log.append((plan, now_s, apply(self, plan, now_s)))
        return log[-1][2]

    jobs = [job(f"job-{n}", 45.0 * n, 200 + 50 * n) for n in range(5)]
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "step", stepped)
        patch.setattr(Engine, "apply", applied)
        run(scene(jobs, spread=0.15), "adaptive")
    assert sum(isinstance(entry, Plan) and bool(entry.targets) for entry, _, _ in log) >= 5
    again = Engine()
    for entry, now_s, before in log:
        redo = again.apply(entry, now_s) if isinstance(entry, Plan) else again.step(entry, now_s)
        assert codec.dumps(redo.commands) == codec.dumps(before.commands)
    assert again.state.jobs == {}
