"""Models of the next character or token of a text."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mpifl.learning.models.classifier import Classifier


class LastLayer(nn.Module):
    """A character embedding and stacked LSTM layers: the hidden states [n, hidden, L] of tokens [n, L]."""

    def __init__(self, characters: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the last layer's hidden state at every character."""
        states: Tensor = self.lstm(self.embedding(tokens))[0]
        return states.transpose(1, 2)


def char_lstm(classes: int, embedding: int = 8, hidden: int = 256, layers: int = 2) -> nn.Module:
    """Return the stacked character LSTM of McMahan et al. 2017, section 3.

    It takes characters [n, L], int64, and returns logits [n, classes, L] for the next character at each
    place. `classes` is the number of characters. Its output layer is a convolution of width 1, that is one
    linear map for all places.

    With V characters it has 798,720 + 265 V parameters, including torch's two bias vectors for each gate:
    815,945 for the 65 of Tiny Shakespeare, 822,305 for the 89 of Gutenberg's edition, 866,560 for all 256
    bytes. The paper counts 866,578 and does not state its vocabulary; no whole V gives that number.
    """
    return Classifier(
        LastLayer(classes, embedding, hidden, layers), nn.Conv1d(hidden, classes, kernel_size=1)
    )


class TransformerBlock(nn.Module):
    """One layer of a transformer: attention to earlier tokens, then two linear maps at each token.

    The result of each part is added to its input; the part itself gets the normalised input (Radford et al.
    2019, section 2.3).
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.before_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.before_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the states after this layer, shape [n, L, width]."""
        x = x + self._dropped(self.attended(self._attend(self.before_attention(x))))
        return x + self._dropped(self.mlp(self.before_mlp(x)))

    def _attend(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        heads = self.queries_keys_values(x).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return mixed.transpose(1, 2).reshape(n, length, width)

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


class CausalStates(nn.Module):
    """A causal transformer: the last layer's states [n, width, L] of tokens [n, L]."""

    def __init__(self, tokens: int, length: int, width: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.token = nn.Embedding(tokens, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(TransformerBlock(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the last layer's state at every token."""
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        states: Tensor = self.norm(x)
        return states.transpose(1, 2)


def gpt(
    shape: tuple[int, ...],
    classes: int,
    width: int = 128,
    layers: int = 4,
    heads: int = 4,
    dropout: float = 0.0,
) -> nn.Module:
    """Return a small causal transformer (GPT-2's, Radford et al. 2019, section 2.3).

    It takes tokens [n, L], int64, and returns logits [n, classes, L] for the next token at each place.
    Weights are drawn from N(0, 0.02^2); weights at the end of a residual branch from N(0, 0.02^2 / (2
    layers)).

    With width D, N layers, V tokens and length L it has V (2 D + 1) + L D + N (12 D^2 + 13 D) + 2 D
    parameters.

    Args:
        shape: (L,), the length of an example.
        classes: The number of tokens in the vocabulary.
        width: D, a multiple of `heads`.
        layers: N, the number of layers.
        heads: The number of attention heads.
        dropout: The share of values that training sets to zero.

    Raises:
        ValueError: the width is not a multiple of the heads, or an example is not a row of tokens.
    """
    if width % heads:
        raise ValueError(f"width = {width} is not a multiple of heads = {heads}")
    if len(shape) != 1:
        raise ValueError(f"an example has the shape {list(shape)}; gpt takes tokens, [L]")
    states = CausalStates(classes, shape[0], width, layers, heads, dropout)
    module = Classifier(states, nn.Conv1d(width, classes, kernel_size=1))
    for name, parameter in module.named_parameters():
        if parameter.dim() > 1:
            last = name.endswith(("attended.weight", "mlp.2.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if last else 0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return module
