"""The words of pages that a reader need not know, in plain words."""

from __future__ import annotations

import re

WORDS = {
    "silo": "One place that keeps its own rows, or columns of them, such as a hospital.",
    "server": "The program that leads: it asks the silos, and makes the model of what they send.",
    "site": "An organisation that takes part with one or more silos, on machines of its own.",
    "coordinator": "Who starts the training and asks the sites; the server is its program.",
    "letter": "A sealed file by which the server asks a site, and the site answers.",
    "round": "Silos train for a while, and the server makes the next model of what they send.",
    "rank": "One of the programs that compute together.",
    "worker": "A rank that trains for one or more silos.",
    "shard": "The file with one silo's rows.",
    "baseline": "What a model is compared with: each silo's own model, and one of all rows.",
    "seed": "The number that all chance of a training follows from. Another seed gives another training.",
    "held-out": "Rows that no model has learned from. Models are scored by them.",
    "validation rows": "Held-out rows that choose a round or a setting, so that test rows stay unseen.",
    "pooled": "As if the rows of all silos lay in one place.",
    "accuracy": "The share of right answers. Yes is answered above a probability: 0.5, or [task] threshold.",
    "AUROC": "How well the model ranks yes above no: 50% is a coin, 100% is perfect.",
    "dice": "How far a predicted area and the true one overlap: 0 is not at all, 1 is wholly.",
    "perplexity": "How unsure a model is of the next token: 1 is sure, and guessing among N tokens has N.",
    "LoRA": "Small matrices beside frozen weights; they alone are trained.",
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
    "fedavg": "The server's model is the mean of the silos' models; [aggregation] may name another rule.",
    "ditto": "Each silo also trains a model of its own, held near the shared one by lambda; 0 holds none.",
    "logreg": "Logistic regression.",
    "mlp": "A small neural network.",
    "recall": "The share of yes that is found; also called the true positive rate. Yes is as for accuracy.",
    "false positive rate": "The share of no that is taken for yes.",
    "calibration": "Whether probabilities come true: of rows that are told 70%, 70% should be yes.",
    "precision": "The share of right answers among those of yes. Yes is as for accuracy.",
}  # fmt: skip


def words_in(page: str) -> list[tuple[str, str]]:
    """Return the words that a page has, in the order of WORDS, and what each is."""
    text = re.sub(r"<(script|pre)\b.*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL).lower()
    found = (word for word in WORDS if re.search(rf"(?<!\w){word.lower()}s?(?!\w)", text))
    return [(word, WORDS[word]) for word in found]
