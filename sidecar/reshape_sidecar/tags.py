"""The tag of every value of this package that is stored or sent, and the class that has it now.

Does: maps each tag to ``module:Class`` within the package, so that a class can be moved or renamed
without a change of what is stored. Never: imports a class, or changes a tag. State: none.
"""

from __future__ import annotations

TAGS = {
    "Ended": "agent.memory:ProcessExit",
    "Memory": "agent.memory:Memory",
    "AttemptSpec": "agent.spec:AttemptSpec",
    "Claim": "contract:Claim",
    "FileEntry": "contract:FileEntry",
    "HookReport": "contract:HookReport",
    "Manifest": "contract:Manifest",
    "GpuSeen": "gpu:GpuReading",
    "Inventory": "gpu:Inventory",
    "End": "init.values:End",
    "ExitFile": "init.values:ExitFile",
    "InitFile": "init.values:InitFile",
    "Look": "init.values:GetStatus",
    "Ring": "init.values:SendSigterm",
    "Spawn": "init.values:Spawn",
    "Status": "init.values:InitStatus",
    "Sweep": "init.values:Sweep",
    "Training": "init.values:TrainingProcess",
    "Withdraw": "init.values:WithdrawSigterm",
    "Desired": "wire:Desired",
    "GpuUse": "wire:GpuUse",
    "Meeting": "wire:Meeting",
    "Observed": "wire:Observed",
    "Outcome": "wire:Outcome",
    "PhaseTimes": "wire:PhaseTimes",
    "Progress": "wire:Progress",
}
