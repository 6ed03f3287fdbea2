"""Models of text: the next character."""

from __future__ import annotations

from torch import Tensor, nn

from mpifl.models.classifier import Classifier


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

    It takes characters [n, L], int64, and answers logits [n, classes, L] for the next one at each. `classes`
    is the number of characters. Its output layer is a convolution of width 1: one linear map, the same at
    every character.

    V characters make 798,720 + 265 V parameters, with torch's two bias vectors a gate: 815,945 for the 65 of
    Tiny Shakespeare, 822,305 for the 89 of Gutenberg's edition, 866,560 for all 256 bytes. The paper counts
    866,578 and does not state its vocabulary; no whole V makes that.
    """
    return Classifier(
        LastLayer(classes, embedding, hidden, layers), nn.Conv1d(hidden, classes, kernel_size=1)
    )
