"""The schemes by their names, but for those that are made of others;
a new one is a pure function and a line here."""

from __future__ import annotations

from data_prep.schemes.classes import classes
from data_prep.schemes.drift import DRIFT
from data_prep.schemes.iid import iid
from data_prep.schemes.image_effects import BRIGHTNESS, ROTATION
from data_prep.schemes.labels import dirichlet, shards
from data_prep.schemes.natural import natural
from data_prep.schemes.noise import NOISE
from data_prep.schemes.ordered import ordered
from data_prep.schemes.quantity import power_law, power_law_shares, quantity, quantity_shares
from data_prep.schemes.scheme import Scheme

PLAIN: dict[str, Scheme] = {
    "iid": Scheme(iid),
    "shards": Scheme(shards, by_class=True),
    "dirichlet": Scheme(dirichlet, by_class=True),
    "classes": Scheme(classes, by_class=True, classes_exact=True),
    "quantity": Scheme(quantity, shares=quantity_shares),
    "power-law": Scheme(power_law, shares=power_law_shares),
    "feature-noise": Scheme(iid, effect=NOISE),
    "rotation": Scheme(iid, effect=ROTATION),
    "brightness": Scheme(iid, effect=BRIGHTNESS),
    "concept-drift": Scheme(iid, effect=DRIFT),
    "natural": Scheme(natural, column="silo"),
    "ordered": Scheme(ordered, column="order"),
}
