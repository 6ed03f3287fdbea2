"""The algorithms by their names in jobs."""

import importlib
import importlib.util
from collections.abc import Iterator, Mapping

from mpifl.algorithms.algorithm import Algorithm

_CLASSES = {
    "fedsgd": "mpifl.algorithms.fedsgd.FedSGD",
    "fedavg": "mpifl.algorithms.fedavg.FedAvg",
    "fedprox": "mpifl.algorithms.fedprox.FedProx",
    "fedexp": "mpifl.algorithms.fedexp.FedExP",
    "fedsam": "mpifl.algorithms.fedsam.FedSAM",
    "fednova": "mpifl.algorithms.fednova.FedNova",
    "scaffold": "mpifl.algorithms.scaffold.Scaffold",
    "feddyn": "mpifl.algorithms.feddyn.FedDyn",
    "fsvrg": "mpifl.algorithms.fsvrg.FSVRG",
    "qfedavg": "mpifl.algorithms.qffl.QFedAvg",
    "qfedsgd": "mpifl.algorithms.qffl.QFedSGD",
    "fedper": "mpifl.algorithms.fedper.FedPer",
    "fedbn": "mpifl.algorithms.fedper.FedBN",
    "fedrep": "mpifl.algorithms.fedrep.FedRep",
    "finetune": "mpifl.algorithms.finetune.FineTune",
    "ditto": "mpifl.algorithms.ditto.Ditto",
    "pfedme": "mpifl.algorithms.pfedme.PFedMe",
    "apfl": "mpifl.algorithms.apfl.APFL",
    "ifca": "mpifl.algorithms.ifca.IFCA",
    "ifcasgd": "mpifl.algorithms.ifca.IFCASGD",
    "moon": "mpifl.algorithms.moon.Moon",
    "feddf": "mpifl.algorithms.feddf.FedDF",
    "fedasync": "mpifl.algorithms.fedasync.FedAsync",
    "fedbuff": "mpifl.algorithms.fedbuff.FedBuff",
    "fedcompass": "mpifl.algorithms.fedcompass.FedCompass",
    "splitnn": "mpifl.wings.split.SplitNN",
    "newton": "mpifl.wings.analysis.Newton",
    "cox": "mpifl.wings.analysis.Cox",
    "kaplanmeier": "mpifl.wings.analysis.KaplanMeier",
    "tableone": "mpifl.wings.analysis.TableOne",
    "dptable": "mpifl.wings.analysis.DPTable",
}
"""The class of each algorithm. A class of a folder that is not here is no algorithm."""


class _Algorithms(Mapping[str, type[Algorithm]]):
    """The algorithms that are installed; a class is imported on first use."""

    def __getitem__(self, name: str) -> type[Algorithm]:
        module, _, kind = _CLASSES[name].rpartition(".")
        if not importlib.util.find_spec(module):
            raise KeyError(name)
        found: type[Algorithm] = getattr(importlib.import_module(module), kind)
        return found

    def __iter__(self) -> Iterator[str]:
        modules = ((name, path.rpartition(".")[0]) for name, path in _CLASSES.items())
        yield from (name for name, module in modules if importlib.util.find_spec(module))

    def __len__(self) -> int:
        return sum(1 for _ in self)


ALGORITHMS: Mapping[str, type[Algorithm]] = _Algorithms()

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
