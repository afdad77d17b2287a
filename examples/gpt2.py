"""GPT-2 of the package transformers, small and with random weights, learns Python's own documentation by characters.

    farandole run sync_sgd -n 2 --task examples/gpt2.py --batch 32 --lr 0.2 --steps 100

The model takes its loss itself: a batch is the dict of tensors that it expects.
"""

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from farandole import Task
from farandole.data import datasets
from farandole.data.characters import CONTEXT, VOCABULARY

TEST = 500  # passages
CONFIG = GPT2Config(
    vocab_size=len(VOCABULARY), n_positions=CONTEXT, n_embd=64, n_layer=2, n_head=4,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
)  # fmt: skip


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    found: Tensor = model(**batch).loss
    return found


def accuracy(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return for each character but the first whether it is the likeliest."""
    likeliest = model(input_ids=batch["input_ids"]).logits.argmax(dim=-1)
    return torch.eq(likeliest[:, :-1], batch["labels"][:, 1:])


def task() -> Task:
    passages = datasets.load("pydoc").inputs
    train, test = ({"input_ids": part, "labels": part} for part in (passages[TEST:], passages[:TEST]))
    return Task(lambda: GPT2LMHeadModel(CONFIG), train, test, loss=loss, metrics={"accuracy": accuracy}, name="GPT-2")
