"""The algorithms by the names that a job calls them."""

from mpifl.algorithms.base import Algorithm, Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.fedsgd import FedSGD

ALGORITHMS: dict[str, type[Algorithm]] = {"fedavg": FedAvg, "fedsgd": FedSGD}

__all__ = ["ALGORITHMS", "Algorithm", "Cohort", "FedAvg", "FedSGD"]
