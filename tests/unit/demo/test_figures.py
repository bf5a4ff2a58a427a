"""The demo's pictures, compared by structure: bars, marks, lines and labels."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.demo_bed import in_place, relaunched

# isort: split
from figures import draw_all
from summary import summarize

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with every picture of two presets."""
    out = tmp_path_factory.mktemp("demo")
    runs = {"case-study-termination": relaunched(), "adaptive": in_place()}
    summary = summarize({"measured": {name: [run] for name, run in runs.items()}}, {})
    written = draw_all({"measured": runs}, summary, out)
    assert all(path.is_file() for path in written)
    return out / "figures" / "measured"


def texts(path: Path) -> list[str]:
    """Every label of an SVG file."""
    root = ElementTree.parse(path).getroot()
    return ["".join(node.itertext()).strip() for node in root.iter() if node.tag.endswith("text")]


def ids(path: Path) -> list[str]:
    return re.findall(r'id="([^"]+)"', path.read_text())


def test_every_picture_is_there_as_svg_and_png_and_every_run_as_a_trace(drawn: Path) -> None:
    names = {"adaptive", "case-study-termination", "all-presets", "compared"}
    assert {path.stem for path in drawn.glob("*.svg")} == names
    assert {path.stem for path in drawn.glob("*.png")} == names
    for path in drawn.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    assert len(list(drawn.glob("*.trace.json"))) == 2


def test_a_run_has_a_bar_for_each_stretch_of_training_and_a_mark_for_each_reshape(
    drawn: Path,
) -> None:
    found = ids(drawn / "adaptive.svg")
    trained = [s for lane in in_place().timeline.gpus for s in lane.spans if s.phase == "training"]
    trained += [s for lane in in_place().timeline.jobs for s in lane.spans if s.phase == "training"]
    assert found.count("training") == len(trained)
    assert found.count("reshape") == 2 * 2, "two reshapes, in the lanes and in the rates"
    labels = texts(drawn / "adaptive.svg")
    assert "▼ A: 4 → 2 GPUs" in labels
    assert "▲ A: 2 → 4 GPUs" in labels
    assert {"GPU 0", "GPU 3", "A job-1", "B job-2", "(over 5 s)"} <= set(labels)


def test_each_job_has_a_line_of_iterations_per_second(drawn: Path) -> None:
    found = ids(drawn / "adaptive.svg")
    assert found.count("rate-job-1") == 1
    assert found.count("rate-job-2") == 1


def test_the_title_says_what_was_measured_and_that_steps_were_paced(drawn: Path) -> None:
    assert "adaptive: measured costs, paced steps" in texts(drawn / "adaptive.svg")


def test_no_picture_needs_colour(drawn: Path) -> None:
    for path in drawn.glob("*.svg"):
        for colour in re.findall(r"#([0-9a-f]{6})", path.read_text()):
            assert colour[:2] == colour[2:4] == colour[4:], f"{path.name}: #{colour} is no grey"


def test_the_comparison_has_two_bars_for_each_preset(drawn: Path) -> None:
    found = ids(drawn / "compared.svg")
    assert found.count("makespan_s") == found.count("mean_jct_s") == 2
    labels = texts(drawn / "compared.svg")
    assert "80 s" in labels
    assert "adaptive" in labels


def test_a_trace_names_the_preset_and_what_was_assumed(drawn: Path) -> None:
    trace = json.loads((drawn / "adaptive.trace.json").read_text())
    assert trace["otherData"] == {
        "preset": "adaptive",
        "costs": "measured costs, paced steps",
        "paced": "true",
    }
