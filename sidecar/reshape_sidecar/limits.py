"""Every deadline and bound of init and agent, by name, with its consequence.

Never: read from a file or the environment here; what differs per job comes with its desired state.
Seconds and bytes, as the names say.
"""

from __future__ import annotations

GRACE_S = 30.0
"""SIGTERM to init without a stated grace: training saves within this, then everything is killed."""
AGENT_BACKOFF_MIN_S = 0.1
AGENT_BACKOFF_MAX_S = 5.0
"""A dead agent is started again after this long, doubled at each death in a row."""
AGENT_STEADY_S = 30.0
"""An agent that lived this long was no failure: its back-off begins anew."""
AGENT_END_S = 2.0
"""SIGTERM to the agent at the container's end. Then: SIGKILL."""
SWEEP_POLL_S = 0.02
"""How often init looks whether the processes that it told to end are gone."""
LEFTOVER_GRACE_S = 5.0
"""What a training process left behind when it ended by itself gets between TERM and KILL."""
REQUEST_BYTES_MAX = 16 << 20
"""Longest request to init, beyond what Linux starts a program with: a start that is too large is
refused by the kernel, and told as the training's end. Then: the connection is closed."""
LOG_BYTES_MAX = 64 << 20
"""A log file beyond this is copied to NAME.1 and emptied: a job's logs take twice this at most."""
LOG_CHECK_S = 10.0

POLL_WAIT_S = 15.0
"""The coordinator may hold an answer this long."""
ANSWER_MARGIN_S = 10.0
"""No answer this long after it was due: the request is given up and sent again."""
CONNECT_S = 5.0
BACKOFF_MIN_S = 0.2
BACKOFF_MAX_S = 5.0
"""Between two tries to reach the coordinator; training is not touched meanwhile."""
HEARTBEAT_S = 2.0
"""Progress without a change of phase is reported this often; also silence is."""
UNHOOKED_RUNNING_S = 3.0
"""A program without hook and session cannot name its first step: it runs after this long."""
EXIT_REPORT_S = 60.0
"""The last report before the container ends is tried this long. Then: it ends unreported."""
HOOKED_RUNNING_S = 90.0
"""A program that has the hook or a session and names no first step for so long: it runs."""
ERROR_CHARS_MAX = 2000
"""Longest ``error`` in a report: the end of the log of a crashed training process."""
ERROR_LINES_MAX = 20
ADDRESS_CHECK_S = 0.1
"""One of several workers offers another port so soon after a start has taken the one before."""
REPORT_BYTES_MAX = 1 << 20
"""Longest body on the agent's socket."""
INIT_CONNECT_S = 10.0
"""The agent gives up when it cannot reach its init for so long, and is started again."""
