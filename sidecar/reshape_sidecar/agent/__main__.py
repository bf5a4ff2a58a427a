"""``python -I PATH/agent/__main__.py --folder F``: run the agent of the attempt in folder F.

Does: sets up logging and runs. Runs by file path, so that nothing enters a user's import path.
``--user``: the user of training where it is not the agent's.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
from pathlib import Path


def main() -> int:
    """Run the agent and end the process: 0 on SIGTERM, 1 if init or its files are not usable."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from reshape_sidecar.agent.init_link import InitGone
    from reshape_sidecar.agent.loop import Agent
    from reshape_sidecar.agent.spec import Folder
    from reshape_sidecar.codec import CodecError
    from reshape_sidecar.user import User

    parser = argparse.ArgumentParser(prog="reshape-agent")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--user", type=User.of)
    arguments = parser.parse_args()
    folder, user = Folder(arguments.folder), arguments.user
    if user is not None:
        os.setgroups(user.groups)  # all threads have them; each acts as the user by itself
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s agent: %(levelname)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%SZ",
    )
    logging.Formatter.converter = time.gmtime

    async def run() -> int:
        try:
            await Agent(folder, user).run()
        except (InitGone, OSError, CodecError) as error:
            logging.getLogger("agent").error("%s", error)
            return 1
        except Exception:
            logging.getLogger("agent").exception("a defect")
            return 1
        return 0

    async def run_and_exit() -> None:
        # At once: a thread that hangs on a disk must not keep init from starting the next agent.
        os._exit(await run())

    asyncio.run(run_and_exit())
    return 1


if __name__ == "__main__":
    sys.exit(main())
