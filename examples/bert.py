"""BERT of the package transformers, small and with random weights, fills in characters of Python's documentation.

    farandole run local_sgd -n 2 --task examples/bert.py --batch 32 --lr 0.2 --steps 100 --period 8

Each passage has the same number of hidden characters, so that a mean over passages is one over characters.
"""

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM

from farandole import Task
from farandole.data import datasets
from farandole.data.characters import CONTEXT, VOCABULARY

TEST, HIDDEN = 500, 8  # passages; characters hidden in each
MASK, NOT_ASKED = len(VOCABULARY), -100
CONFIG = BertConfig(
    vocab_size=len(VOCABULARY) + 1, max_position_embeddings=CONTEXT, hidden_size=64, num_hidden_layers=2,
    num_attention_heads=4, intermediate_size=128, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip


def masked(passages: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Return passages with hidden characters, and these characters."""
    hidden = np.random.default_rng(seed).permuted(np.arange(passages.size).reshape(passages.shape) % CONTEXT, axis=1)
    is_hidden = hidden < HIDDEN
    return {
        "input_ids": np.where(is_hidden, MASK, passages),
        "labels": np.where(is_hidden, passages, NOT_ASKED),
    }


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    found: Tensor = model(**batch).loss
    return found


def accuracy(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return for each hidden character whether it is the likeliest."""
    likeliest = model(input_ids=batch["input_ids"]).logits.argmax(dim=-1)
    asked = batch["labels"] != NOT_ASKED
    return torch.eq(likeliest[asked], batch["labels"][asked])


def task() -> Task:
    passages = datasets.load("pydoc").inputs
    train, test = masked(passages[TEST:], 0), masked(passages[:TEST], 1)
    return Task(lambda: BertForMaskedLM(CONFIG), train, test, loss=loss, metrics={"accuracy": accuracy}, name="BERT")
