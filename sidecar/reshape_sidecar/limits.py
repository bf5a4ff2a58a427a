"""Every deadline and bound of init and agent, by name, with its consequence.

Units are in the names. Limits that differ per job come with its desired state.
"""

from __future__ import annotations

GRACE_S = 30.0
"""Default grace after SIGTERM to init: training saves within it, then every process is killed."""
AGENT_BACKOFF_MIN_S = 0.1
AGENT_BACKOFF_MAX_S = 5.0
"""Back-off before an agent that died twice in a row is started again, doubled at each further
death. After the first death there is none: a release may wait for the next agent."""
AGENT_STEADY_S = 30.0
"""Lifetime of an agent after which its next death counts as the first."""
AGENT_END_S = 2.0
"""Time between SIGTERM and SIGKILL to the agent at the container's end."""
SWEEP_POLL_S = 0.02
"""Interval at which init checks whether the processes that it ends are gone."""
LEFTOVER_GRACE_S = 5.0
"""Time between SIGTERM and SIGKILL for processes that training left when it ended by itself."""
REQUEST_BYTES_MAX = 16 << 20
"""Longest request to init; beyond it init closes the connection. The kernel's limit for arguments
and environment is lower, so a start that is too large fails there, as an exit of training."""
LOG_BYTES_MAX = 64 << 20
"""Of a longer log file the oldest part is freed. Without holes in files it is copied to NAME.1 and
emptied, so a log takes at most twice this."""
ECHO_EVERY_S = 0.5
"""Pause between two copies of training's output to the log of its pod."""
LOG_CHECK_S = 10.0
ZYGOTE_ANSWER_S = 5.0
"""Time for the zygote's fork to be ready; then the start is cold, and the zygote is killed."""
ZYGOTE_AGAIN_S = 30.0
"""Time that training runs before a zygote that has ended is started again beside it."""
ZYGOTE_STARTS_MAX = 4
"""Starts of the zygote in one container (a count); then every start is cold."""
ZYGOTE_IMPORT_S = 60.0
"""Longest time for which a start waits for a zygote that still imports the framework, from the
request to start or, if that is later, from the start of the zygote."""
SUCCESSOR_LEAVE_S = 2.0
"""A dropped successor is killed if it has not ended after this long."""

POLL_WAIT_S = 15.0
"""Longest time for which the coordinator may hold an answer."""
ANSWER_MARGIN_S = 10.0
"""Time after that without an answer until the request is sent again."""
CONNECT_S = 5.0
BACKOFF_MIN_S = 0.2
BACKOFF_MAX_S = 5.0
"""Longest pause between two tries to reach the coordinator; training goes on meanwhile."""
HEARTBEAT_S = 2.0
"""Interval of reports without a change of phase."""
UNHOOKED_RUNNING_S = 3.0
"""Time after which a program without hook and session counts as running."""
EXIT_REPORT_S = 60.0
"""Longest time for the last report before the container ends without it."""
HOOKED_RUNNING_S = 90.0
"""The same for a program under the hook that neither imports Keras nor names it or TensorFlow."""
FIRST_STEP_SEEN_S = 1800.0
"""The same for a program whose first step the hook or a session reports: it prepares until then."""
SILENCE_LOOK_S = 5.0
"""Interval at which the agent looks whether a start is silent."""
SILENCE_WINDOW_S = 60.0
"""A start works while its processes use ``SILENCE_CPU_S`` of processor time in this time."""
SILENCE_CPU_S = 1.0
SILENCE_STEP_S = 5.0
"""Silence is reported in whole steps of this length."""
SILENCE_MAX_S = 86_400.0
"""Longest silence that is reported."""
ERROR_CHARS_MAX = 2000
"""Longest ``error`` in a report: the end of the log of a crashed training process."""
ERROR_LINES_MAX = 20
ADDRESS_CHECK_S = 0.1
"""Interval at which one of several workers offers a new port once a start has used the last."""
REPORT_BYTES_MAX = 1 << 20
"""Longest body on the agent's socket."""
INIT_CONNECT_S = 10.0
"""Time after which an agent that cannot reach its init ends; init starts it again."""
