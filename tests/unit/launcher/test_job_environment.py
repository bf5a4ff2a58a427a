"""A local job gets the daemon's variables that the operator allows, and no other."""

from __future__ import annotations

import pytest

from reshape_launcher.local import job_environment
from reshape_launcher.local.job_environment import BadPattern

DAEMON = {
    "PATH": "/bin",
    "LC_TIME": "C",
    "https_proxy": "http://proxy:3128",
    "HOME": "/h",
    "AWS_SECRET_ACCESS_KEY": "sesame",
    "RESHAPE_STORE": "mongodb://u:p@h/d",
    "LCX": "1",
}


def test_the_default_passes_paths_languages_and_proxies_and_no_credential() -> None:
    found = job_environment.allowed(DAEMON, job_environment.parse(job_environment.DEFAULT))
    assert set(found) == {"PATH", "LC_TIME", "https_proxy", "HOME"}


def test_a_star_passes_all_but_the_settings_of_the_daemon() -> None:
    found = job_environment.allowed(DAEMON, job_environment.parse("*"))
    assert found == {name: text for name, text in DAEMON.items() if name != "RESHAPE_STORE"}


@pytest.mark.parametrize("text", ["PATH,", "PATH;LANG", "A B", "1X", "A=b"])
def test_a_name_that_no_variable_has_is_refused(text: str) -> None:
    with pytest.raises(BadPattern):
        job_environment.parse(text)
