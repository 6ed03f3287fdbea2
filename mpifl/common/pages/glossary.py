"""The words of pages that a reader need not know, in plain words."""

from __future__ import annotations

import re

WORDS = {
    "silo": "One place that keeps its own rows, such as a hospital.",
    "round": "The server sends its model, silos train it on their rows, and theirs become the next one.",
    "rank": "One of the programs that compute together.",
    "seed": "The number that all chance of a training follows from. Another seed gives another training.",
    "held-out": "Rows that no model has learned from. Models are scored by them.",
    "validation rows": "Held-out rows that choose a round or a setting, so that test rows stay unseen.",
    "pooled": "As if the rows of all silos lay in one place.",
    "accuracy": "The share of right answers.",
    "AUROC": "How well the model ranks yes above no: 50% is a coin, 100% is perfect.",
    "dice": "How far a predicted area and the true one overlap: 0 is not at all, 1 is wholly.",
    "loss": "What training makes small: how far answers are from the truth.",
    "points": "The difference of two per cents: from 80% to 82% are 2 points.",
    "95% interval": "Where the true value may lie, given how few rows or seeds there are.",
    "p": "How often chance makes so large a difference where there is none. Up to 0.05 a difference is seen.",
    "corrected": "Of many tests some find a difference by chance. The correction (Holm) makes up for that.",
    "Wilson": "The interval of a share by its number of rows (1927).",
    "DeLong": "The interval of an AUROC (1988).",
    "Tango": "The interval of a difference of two models on the same rows (1998).",
    "McNemar": "The test of two models by the rows that one of them alone has right (1947).",
    "bootstrap": "Rows are drawn again and again, to see how much a figure depends on them.",
    "epsilon": "Privacy: the smaller it is, the less is told of one. Delta is the chance that it fails.",
    "learning rate": "How far a step of training moves the model; the key lr of the job.",
    "lr": "The learning rate: how far a step of training moves the model.",
    "checkpoint": "A saved state that a stopped run goes on from.",
    "fedavg": "The server's model is the mean of the silos' models.",
    "ditto": "Each silo also trains a model of its own, held near the shared one by lambda; 0 holds none.",
    "logreg": "Logistic regression.",
    "mlp": "A small neural network.",
    "recall": "The share of yes that is found; also called the true positive rate.",
    "false positive rate": "The share of no that is taken for yes.",
    "calibration": "Whether probabilities come true: of rows that are told 70%, 70% should be yes.",
    "precision": "The share of right answers among those of yes.",
}  # fmt: skip


def words_in(page: str) -> list[tuple[str, str]]:
    """Return the words that a page has, in the order of WORDS, and what each is."""
    text = re.sub(r"<(script|pre)\b.*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL).lower()
    found = (word for word in WORDS if re.search(rf"(?<!\w){word.lower()}s?(?!\w)", text))
    return [(word, WORDS[word]) for word in found]
