"""Run ``reshape`` with few file descriptors: ``python -m tests.support.narrow_daemon``.

Does: what the command does, under a limit of open files that connections alone can reach. State:
none.
"""

from __future__ import annotations

import resource

from reshape_controller.cli.main import main

FILES = 160

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    main()
