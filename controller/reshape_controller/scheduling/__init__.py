"""What the policies share: predictions, the forecast of all jobs, and the evaluation of options.

The modules predict how long things take and when all jobs would have ended under each option. They
are pure: policies decide, and the engine changes the state.
"""
