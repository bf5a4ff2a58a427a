"""The tag of every value of this package that is stored or sent, and its class.

Maps each tag to ``module:Class`` within the package: a class can be moved or renamed without a
change of stored data. A tag never changes (tests/golden holds the list).
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
    "Release": "contract:Release",
    "StandbyReport": "contract:StandbyReport",
    "GpuSeen": "gpu:GpuReading",
    "Inventory": "gpu:Inventory",
    "Adopt": "init.values:Adopt",
    "Drop": "init.values:Drop",
    "End": "init.values:End",
    "ExitFile": "init.values:ExitFile",
    "InitFile": "init.values:InitFile",
    "Look": "init.values:GetStatus",
    "Prepare": "init.values:Prepare",
    "Ring": "init.values:SendSigterm",
    "Spawn": "init.values:Spawn",
    "Successor": "init.values:SuccessorProcess",
    "Status": "init.values:InitStatus",
    "Sweep": "init.values:Sweep",
    "Training": "init.values:TrainingProcess",
    "UseZygote": "init.values:UseZygote",
    "Withdraw": "init.values:WithdrawSigterm",
    "Zygote": "init.values:ZygoteProcess",
    "LeftStep": "proof.figures:LeftStep",
    "OptimizerFigures": "proof.figures:OptimizerFigures",
    "StepFigures": "proof.figures:StepFigures",
    "Desired": "wire:Desired",
    "Evaluation": "wire:Evaluation",
    "GpuUse": "wire:GpuUse",
    "Proof": "wire:Proof",
    "Meeting": "wire:Meeting",
    "Observed": "wire:Observed",
    "Outcome": "wire:Outcome",
    "PhaseTimes": "wire:PhaseTimes",
    "Prepared": "wire:Prepared",
    "Progress": "wire:Progress",
    "Reached": "wire:Reached",
    "Standby": "wire:Standby",
    "TargetProgress": "wire:TargetProgress",
}
