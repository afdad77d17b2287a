"""The language model attends only to earlier positions; its layers are the requested ones."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from farandole.errors import UsageError
from farandole.models.transformer import Attention, Block, Embedding, Head, transformer

VOCABULARY, CONTEXT = 23, 12


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return transformer((CONTEXT,), VOCABULARY, hidden=32, depth=2).double()


def characters(samples: int) -> torch.Tensor:
    return torch.randint(VOCABULARY, (samples, CONTEXT), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("samples", [0, 1, 5])
def test_every_character_gets_a_logit_for_each_that_may_follow(model: nn.Sequential, samples: int) -> None:
    assert model(characters(samples)).shape == (samples, CONTEXT, VOCABULARY)


def test_a_shorter_text_can_be_read_too(model: nn.Sequential) -> None:
    text = characters(3)
    torch.testing.assert_close(model(text[:, :5]), model(text)[:, :5])


@pytest.mark.parametrize("changed", range(CONTEXT))
def test_a_character_changes_nothing_before_it_and_everything_after(model: nn.Sequential, changed: int) -> None:
    text = characters(1)
    before = model(text)
    text[0, changed] = (text[0, changed] + 1) % VOCABULARY
    differs = (model(text) - before).abs().amax(dim=(0, 2)) > 1e-9
    assert differs.tolist() == [place >= changed for place in range(CONTEXT)]


def test_the_order_of_the_characters_matters(model: nn.Sequential) -> None:
    text = characters(1)
    turned = text.flip(1)
    turned[0, -1] = text[0, -1]
    assert not torch.allclose(model(text)[0, -1], model(turned)[0, -1])


def test_attention_is_the_formula_head_by_head() -> None:
    torch.manual_seed(2)
    attention, x = Attention(width=32, heads=2).double(), torch.randn(3, 5, 32, dtype=torch.float64)
    ahead = torch.ones(5, 5, dtype=torch.bool).triu(1)
    found = []
    for head in (slice(0, 16), slice(16, 32)):
        query, key, value = (project(x)[..., head] for project in (attention.query, attention.key, attention.value))
        scores = (query @ key.transpose(1, 2) / math.sqrt(16)).masked_fill(ahead, -math.inf)
        found.append(scores.softmax(dim=-1) @ value)
    torch.testing.assert_close(attention(x), attention.output(torch.cat(found, dim=-1)))


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_depth_counts_the_blocks(depth: int) -> None:
    layers = list(transformer((CONTEXT,), VOCABULARY, hidden=48, depth=depth))
    assert [type(layer) for layer in layers] == [Embedding, *[Block] * depth, Head]
    assert [block.attention.head_width for block in layers[1:-1]] == [16] * depth
    size = sum(parameter.numel() for parameter in nn.Sequential(*layers).parameters())
    block = 4 * 48 * 49 + 48 * 4 * 49 + 4 * 48 * 48 + 48 + 2 * 2 * 48
    assert size == (VOCABULARY + CONTEXT) * 48 + depth * block + 2 * 48 + 48 * VOCABULARY


@pytest.mark.parametrize(("hidden", "fitting"), [(8, "give 16$"), (100, "give 96 or 112$")])
def test_a_width_of_no_whole_number_of_heads_is_refused(hidden: int, fitting: str) -> None:
    with pytest.raises(UsageError, match=fitting):
        transformer((CONTEXT,), VOCABULARY, hidden=hidden)
