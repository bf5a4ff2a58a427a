"""Which profiles a daemon records at its start: the bundled ones, and those of a file.

Does: reads them, says which the store lacks, and whether a file can be made for new ones. Never:
lets a bundled profile replace one that was recorded. State: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.output import note
from reshape_controller.core.profile_book import ProfileBook
from reshape_profiles.files import FORMS, Loaded, load
from reshape_profiles.loader import ProfileError, bundled
from reshape_profiles.schema import Profile


@dataclass(frozen=True, slots=True)
class ProfileFiles:
    """Profiles that come with Reshape, and those that were asked for."""

    own: tuple[Profile, ...] = ()
    asked_for: tuple[Profile, ...] = ()

    def missing(self, book: ProfileBook) -> tuple[Profile, ...]:
        """What is to be recorded: own profiles of types that are not known, and every profile
        that was asked for and is not what is recorded."""
        asked = {profile.job_type for profile in self.asked_for}
        own = [p for p in self.own if book.of(p.job_type) is None and p.job_type not in asked]
        return (*own, *(p for p in self.asked_for if book.of(p.job_type) != p))


def read(name: str | None, where: str) -> ProfileFiles:
    """The profiles of a daemon; ``name`` is a file, ``where`` what named it. Raises CliError."""
    if name is None:
        return ProfileFiles(bundled().profiles)
    return ProfileFiles(bundled().profiles, load_file(name, where).bundle.profiles)


def load_file(name: str, where: str, part: str | None = None) -> Loaded:
    """A file of profiles; what of it they do not hold is noted. Raises CliError."""
    path = Path(name).expanduser().absolute()
    try:
        found = load(path, part)
    except OSError as error:
        what = f"profiles cannot be read: {path}: {error.strerror}"
        raise failed(Exit.USAGE, what, where, FORMS) from None
    except ProfileError as error:
        remedy = "fix the file; docs/policies.md describes the format"
        raise failed(Exit.USAGE, error.message, error.path, remedy) from None
    for text in found.notes:
        note(f"{path.name}: {text}")
    return found


def new_file(path: Path, option: str) -> None:
    """Whether a file can be made there, asked before what goes into it is measured for minutes.
    Raises CliError."""
    remedy = f"give another {option} FILE"
    try:
        path.open("x").close()
        path.unlink()
    except FileExistsError:
        raise failed(Exit.USAGE, "the file exists already", str(path), remedy) from None
    except OSError as error:
        what = f"the file cannot be written: {error.strerror}"
        raise failed(Exit.USAGE, what, str(path), remedy) from None
