"""The algorithms by their names in jobs."""

import importlib
import importlib.util
from collections.abc import Iterator, Mapping

from mpifl.algorithms.algorithm import Algorithm
from mpifl.algorithms.apfl import APFL
from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.ditto import Ditto
from mpifl.algorithms.fedasync import FedAsync
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.fedbuff import FedBuff
from mpifl.algorithms.fedcompass import FedCompass
from mpifl.algorithms.feddf import FedDF
from mpifl.algorithms.feddyn import FedDyn
from mpifl.algorithms.fedexp import FedExP
from mpifl.algorithms.fednova import FedNova
from mpifl.algorithms.fedper import FedBN, FedPer
from mpifl.algorithms.fedprox import FedProx
from mpifl.algorithms.fedrep import FedRep
from mpifl.algorithms.fedsam import FedSAM
from mpifl.algorithms.fedsgd import FedSGD
from mpifl.algorithms.finetune import FineTune
from mpifl.algorithms.fsvrg import FSVRG
from mpifl.algorithms.ifca import IFCA, IFCASGD
from mpifl.algorithms.moon import Moon
from mpifl.algorithms.pfedme import PFedMe
from mpifl.algorithms.qffl import QFedAvg, QFedSGD
from mpifl.algorithms.scaffold import Scaffold

_OF_WINGS = {
    "splitnn": ("mpifl.wings.split", "SplitNN"),
    "newton": ("mpifl.wings.analysis", "Newton"),
    "cox": ("mpifl.wings.analysis", "Cox"),
    "kaplanmeier": ("mpifl.wings.analysis", "KaplanMeier"),
    "tableone": ("mpifl.wings.analysis", "TableOne"),
}
"""The wings that have an algorithm: module and class."""


class _Algorithms(Mapping[str, type[Algorithm]]):
    """The core's algorithms, and those of installed wings, which are imported on first use."""

    def __init__(self, core: Mapping[str, type[Algorithm]]) -> None:
        self._core = core

    def __getitem__(self, name: str) -> type[Algorithm]:
        if name not in _OF_WINGS or name not in [*self]:
            return self._core[name]
        module, kind = _OF_WINGS[name]
        found: type[Algorithm] = getattr(importlib.import_module(module), kind)
        return found

    def __iter__(self) -> Iterator[str]:
        yield from self._core
        yield from (name for name, (module, _) in _OF_WINGS.items() if importlib.util.find_spec(module))

    def __len__(self) -> int:
        return sum(1 for _ in self)


_CORE: dict[str, type[Algorithm]] = {
    "fedsgd": FedSGD,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedexp": FedExP,
    "fedsam": FedSAM,
    "fednova": FedNova,
    "scaffold": Scaffold,
    "feddyn": FedDyn,
    "fsvrg": FSVRG,
    "qfedavg": QFedAvg,
    "qfedsgd": QFedSGD,
    "fedper": FedPer,
    "fedbn": FedBN,
    "fedrep": FedRep,
    "finetune": FineTune,
    "ditto": Ditto,
    "pfedme": PFedMe,
    "apfl": APFL,
    "ifca": IFCA,
    "ifcasgd": IFCASGD,
    "moon": Moon,
    "feddf": FedDF,
    "fedasync": FedAsync,
    "fedbuff": FedBuff,
    "fedcompass": FedCompass,
}
ALGORITHMS: Mapping[str, type[Algorithm]] = _Algorithms(_CORE)

ELSEWHERE: dict[str, str] = {
    **{
        f"{fed}{name}": f"'fedavg' with [server_optimizer] name = '{name}' is what you mean; "
        for name in ("adam", "yogi", "adagrad")
        for fed in ("fed", "")
    },
    "fedavgm": "'fedavg' with [server_optimizer] momentum is what you mean; ",
    "fedopt": "'fedavg' with a [server_optimizer] is what you mean; ",
    "qffl": "did you mean 'qfedavg'? ",
}
"""Names that other software gives to algorithms, with hints. Most are server optimizers here (Reddi et al.
2021; Hsu et al. 2019). q-FFL is the objective of q-FedAvg (Li et al. 2020)."""

__all__ = ["ALGORITHMS", "ELSEWHERE", "Algorithm", "Cohort", "FedAvg"]
