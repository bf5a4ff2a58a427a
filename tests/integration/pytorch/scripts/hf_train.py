"""Trains a small BERT with Trainer, in the form of the library's own examples; nothing of Reshape.

torchrun --nproc-per-node 2 hf_train.py --output_dir out --num_train_epochs 3
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    HfArgumentParser,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

WORDS, LENGTH = 64, 12


@dataclass
class ModelArguments:
    """The model that is made, and its data."""

    task: str = field(default="words", metadata={"help": "words or classes"})
    dropout: float = field(default=0.0)
    hidden: int = field(default=16)
    samples: int = field(default=96)
    augment: bool = field(default=True)
    pads: bool = field(default=False, metadata={"help": "sentences of different lengths"})
    by_clock: bool = field(default=False, metadata={"help": "a folder for each start"})
    calls: int = field(default=1, metadata={"help": "calls of train"})


class Sentences(Dataset):  # type: ignore[misc]
    """Random words; in each a word is replaced as the sample is read."""

    def __init__(self, samples: int, *, classes: bool, augments: bool, pads: bool = False) -> None:
        generator = torch.Generator().manual_seed(3)
        self.words = torch.randint(2, WORDS, (samples, LENGTH), generator=generator)
        self.classes, self.augments, self.pads = classes, augments, pads

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, Any]:
        words = self.words[index].clone()
        labels: Any = int(words.sum() % 2) if self.classes else words.clone()
        if self.pads and not self.classes:
            labels[3 + index % 8 :] = -100
        if self.augments:
            words[torch.randint(LENGTH, (1,))] = 1
        return {"input_ids": words, "labels": labels}


class Losses(TrainerCallback):  # type: ignore[misc]
    """Prints each step's loss, and counts the logs."""

    def __init__(self) -> None:
        self.logs = 0

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.logs += 1
        if state.is_world_process_zero and "loss" in logs:
            rate, count = logs["learning_rate"], self.logs
            print(f"step {state.global_step} loss {logs['loss']!r} rate {rate!r} log {count}")

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            print(f"evaluation at {state.global_step} loss {metrics['eval_loss']!r}", flush=True)


def main() -> None:
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)
    if model_args.by_clock:
        training_args.output_dir += f"/{time.time_ns()}"
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=model_args.hidden,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=model_args.dropout,
        attention_probs_dropout_prob=model_args.dropout,
    )
    classes = model_args.task == "classes"
    model = (BertForSequenceClassification if classes else BertForMaskedLM)(config)
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=Sentences(
            model_args.samples, classes=classes, augments=model_args.augment, pads=model_args.pads
        ),
        eval_dataset=Sentences(40, classes=classes, augments=False),
        callbacks=[Losses()],
    )
    for _ in range(model_args.calls):
        result = trainer.train()
        if trainer.is_world_process_zero():
            print(f"trained {result.global_step} loss {result.training_loss!r}", flush=True)
    total = sum(weight.detach().double().sum().item() for weight in model.parameters())
    if trainer.is_world_process_zero():
        print(f"weights {total!r}", flush=True)


if __name__ == "__main__":
    main()
