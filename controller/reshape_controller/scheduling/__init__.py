"""What will be: profiles, the sums of the paper's section III.C, and the forecast of all jobs.

Does: says how long things take and when all jobs would have ended under each option. Pure, as all
of core. Never: decides (policies do) or changes the state (the engine does).
"""
