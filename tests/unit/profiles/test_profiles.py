"""The bundled figures and their sources, files of users, and what is said of a wrong one."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from reshape_profiles import files, loader, show
from reshape_profiles.schema import AccuracyPoint, Overhead, Profile, SpeedPoint

README = Path(loader.__file__).parent / "data" / "README.md"


def test_both_job_sets_of_the_paper_have_seven_types_each() -> None:
    bundle = loader.bundled()
    sets = dict(bundle.sets)
    assert [len(sets[name]) for name in ("one", "two")] == [7, 7]
    assert sets["one"][2] == sets["two"][0] == "resnet18-b256-imagenet"
    batches = [bundle.of(kind) for kind in sets["one"]]
    assert [p.global_batch for p in batches if p] == [64, 128, 256, 64, 128, 64, 1024]
    batches = [bundle.of(kind) for kind in sets["two"]]
    assert [p.global_batch for p in batches if p] == [256, 128, 128, 64, 512, 256, 1024]


def test_every_figure_has_a_source_or_says_that_it_is_assumed() -> None:
    for profile in loader.bundled().profiles:
        sources = [p.source for p in profile.speed] + [p.source for p in profile.accuracy]
        sources += [profile.overhead.source] if profile.overhead else []
        assert all(re.match(r"paper, |assumed: ", source) for source in sources), profile.job_type


def test_table_four_and_five_are_as_printed() -> None:
    profile = loader.bundled().of("resnet18-b64-imagenet")
    assert profile is not None
    printed = {(p.gpu_type, p.gpus): p.seconds_per_step for p in profile.speed if p.gpus <= 2}
    printed = {key: seconds for key, seconds in printed.items() if key[0] != "K80"}
    assert printed == {
        ("1080Ti", 1): 0.31,
        ("1080Ti", 2): 0.23,
        ("P100", 1): 0.25,
        ("P100", 2): 0.19,
        ("V100", 1): 0.18,
        ("V100", 2): 0.14,
    }
    points = [(p.step, p.accuracy) for p in profile.accuracy if p.source == "paper, Table V"]
    assert points == [(1, 0.008), (5, 0.019), (10, 0.025), (20, 0.032)]


@pytest.mark.parametrize(
    ("job_type", "work", "parameters"),
    [
        ("resnet18-b256-imagenet", 1.0, 11.7),
        ("resnet34-b128-imagenet", 79.70 / 47.07, 21.8),
        ("resnet50-b64-imagenet", 153.90 / 47.07, 25.6),
        ("vgg16-b64-imagenet", 232.55 / 47.07, 138.4),
        ("alexnet-b256-imagenet", 23.18 / 47.07, 61.1),
        ("googlenet-b512-imagenet", 1.2, 6.6),
    ],
)
def test_assumed_speeds_follow_the_stated_model(
    job_type: str, work: float, parameters: float
) -> None:
    profile = loader.bundled().of(job_type)
    assert profile is not None
    assert profile.global_batch is not None
    constants = {"P100": (0.0025, 0.09), "V100": (0.001875, 0.06)}
    for point in profile.speed:
        if point.gpu_type not in constants:
            continue
        per_image, fixed = constants[point.gpu_type]
        seconds = profile.global_batch * per_image * work / point.gpus + fixed
        seconds += 0.02 * parameters / 11.7 * (point.gpus - 1)
        assert point.seconds_per_step == pytest.approx(seconds, abs=1e-4), point


def test_resnet_is_as_much_faster_on_two_and_four_gpus_as_the_introduction_says() -> None:
    profile = loader.bundled().of("resnet18-b256-imagenet")
    assert profile is not None
    speed = {p.gpus: p.seconds_per_step for p in profile.speed if p.gpu_type == "P100"}
    assert speed[1] / speed[2] == pytest.approx(1.7, abs=0.05)
    assert speed[1] / speed[4] == pytest.approx(2.4, abs=0.05)


def test_the_case_study_durations_follow_from_the_papers_costs() -> None:
    cost = loader.bundled().with_costs("paper").overhead
    assert cost is not None
    in_place = cost.checkpoint_s + cost.process_stop_s + cost.process_init_s
    assert 27 <= in_place <= 37
    assert in_place + cost.job_stop_s + cost.job_init_s == pytest.approx(204, abs=2)


def test_costs_without_a_name_that_is_known_are_refused() -> None:
    with pytest.raises(loader.ProfileError, match="use one of: paper, local"):
        loader.bundled().with_costs("cloud")


def test_the_readme_explains_every_kind_of_assumption() -> None:
    text = README.read_text()
    for kind in ("model", "small", "curve", "case-study"):
        assert f"`{kind}`" in text


def test_a_profile_that_is_written_is_read_back(tmp_path: Path) -> None:
    profile = Profile(
        "mine",
        "measured here",
        64,
        100,
        (SpeedPoint("H200", 1, 0.5, "measured"), SpeedPoint("H200", 2, 0.3)),
        (AccuracyPoint(10, 0.2, "measured"),),
        Overhead(1, 2, 3, 4, 5, "measured"),
    )
    file = tmp_path / "mine.json"
    file.write_text(loader.write((profile,)))
    assert files.load(file).bundle.profiles == (profile,)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("nonsense", "", "is not valid TOML"),
        ("profile = 3", "profile", "is not a list"),
        ("[[profile]]\ntext = 'x'", "profile[0]", "job_type is empty"),
        ("[[profile]]\njob_type = 'a'\ncolour = 'red'", "colour", "unknown"),
        ("[[profile]]\njob_type = 'a'\nspeed = [['V100', 1]]", "speed[0]", "entries"),
        (
            "[[profile]]\njob_type = 'a'\nspeed = [['V100', 1, 0]]",
            "profile[0]",
            "between 1e-09 and",
        ),
        ("[[profile]]\njob_type = 'a'\nspeed = [['V100', 0, 1]]", "profile[0]", "at least 1"),
        ("[[profile]]\njob_type = 'a'\nspeed = [[1, 1, 1]]", "speed[0][0]", "is not of type str"),
        ("[[profile]]\njob_type = 'a'\nspeed = [['V', 1, nan]]", "profile[0]", "between 1e-09 and"),
        (
            "[[profile]]\njob_type = 'a'\nspeed = [['V', 1, 1], ['V', 1, 2]]",
            "profile[0]",
            "two speeds for 1 V",
        ),
        ("[[profile]]\njob_type = 'a'\naccuracy = [[3, 1.5]]", "profile[0]", "between 0 and 1"),
        ("[[profile]]\njob_type = 'a'\nspeed = [['V', 1, 1e308]]", "profile[0]", "between 1e-09"),
        ("[[profile]]\njob_type = 'a'\n[profile.overhead]\njob_init_s = 1", "overhead", "missing"),
        ("[[profile]]\njob_type = 'a'\n[[profile]]\njob_type = 'a'", "", "two profiles of a"),
        ("[sets]\none = ['a']", "sets.one", "no profile of a"),
    ],
)
def test_a_wrong_file_is_refused_with_place_and_remedy(
    tmp_path: Path, text: str, where: str, what: str
) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(text)
    with pytest.raises(loader.ProfileError) as caught:
        files.load(file)
    assert where in caught.value.path
    assert what in str(caught.value)


def test_a_profile_is_shown_with_speed_ups_and_sources() -> None:
    profile = loader.bundled().of("resnet18-b64-imagenet")
    assert profile is not None
    text = show.show(profile)
    assert re.search(r"2 GPUs +0\.1400 s +1\.29 +paper, Table IV", text)
    assert re.search(r"\b1 GPU  +0", text)
    assert not re.search(r"\b1 (GPUs|steps)", text)
    assert "accuracy 0.008 after 1 step  paper, Table V" in text
    assert "assumed" in text


def test_a_plot_shows_where_more_gpus_are_slower() -> None:
    profile = loader.bundled().of("vgg16-b64-imagenet")
    assert profile is not None
    lines = show.plot_text(profile).splitlines()
    lengths = {line.partition("GPU")[0].strip(): line.count("█") for line in lines}
    assert lengths["V100    2"] > lengths["V100    1"] > lengths["V100    8"]


def test_a_plot_has_one_scale_and_one_column_for_all_gpu_types_within_100_columns() -> None:
    for profile in loader.bundled().profiles:
        lines = show.plot_text(profile).splitlines()[1:]
        assert max(map(len, lines), default=0) <= 100
        assert len({line.index("█") for line in lines}) <= 1
        longest = max(lines, key=lambda line: line.count("█"))
        fastest = max(lines, key=lambda line: float(line.split("█")[-1].split()[0]))
        assert longest.count("█") == fastest.count("█")


def test_a_plot_as_svg_is_well_formed_and_has_a_line_for_each_type() -> None:
    bundle = loader.bundled()
    chosen = [p for p in bundle.profiles if p.job_type.startswith("resnet18")]
    root = ElementTree.fromstring(show.plot_svg(chosen, "V100"))
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == len(chosen) == 3
    assert "assumed" in show.plot_svg(chosen, "V100")
