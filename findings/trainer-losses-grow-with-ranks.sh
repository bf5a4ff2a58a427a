#!/usr/bin/env bash
# transformers 5.24.0: Trainer multiplies the loss by the number of processes, for models divide it by the items of
# all. BertForMaskedLM does not divide: its eval_loss is twice as large on two processes, for the same weights and data;
# a threshold, early stopping or a plot over a restart sees a jump. Of LlamaForCausalLM it is equal.
. "$(dirname "$0")/parts/begin.sh"
install transformers==5.24.0 accelerate==1.15.0 torch==2.15.0

cat >evaluate.py <<'PY'
import os, sys

import torch
from transformers import (BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments)

size = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
data = [{"input_ids": list(range(8)), "labels": list(range(8))} for _ in range(8)]
for name, build in (("bert", lambda: BertForMaskedLM(BertConfig(**size, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))),
                    ("llama", lambda: LlamaForCausalLM(LlamaConfig(**size)))):
    torch.manual_seed(0)
    arguments = TrainingArguments("run", per_device_train_batch_size=2, per_device_eval_batch_size=2, max_steps=1,
                                  learning_rate=0.0, use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no")
    trainer = Trainer(build(), arguments, train_dataset=data, eval_dataset=data)
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
    if int(os.environ.get("RANK", 0)) == 0:
        with open("losses", "a") as file:
            print(name, loss, file=file)
sys.stdout.flush()
os._exit(0)  # PyTorch 2.15 aborts at Python's end now and then, if there was a process group
PY
export OMP_NUM_THREADS=1
"$python" evaluate.py >log 2>&1 || { tail log; exit 1; }
"$python" -m torch.distributed.run --standalone --nproc-per-node 2 evaluate.py >>log 2>&1 || { tail log; exit 1; }
cat losses
awk '{ if ($1 in one) printf "%s: eval_loss of two processes is %.2f times that of one\n", $1, $2 / one[$1]; else one[$1] = $2 }' losses >seen
expect seen <<'SEEN'
bert: eval_loss of two processes is 2.00 times that of one
llama: eval_loss of two processes is 1.00 times that of one
SEEN
