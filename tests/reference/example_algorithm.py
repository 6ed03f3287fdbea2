from pydantic import PositiveFloat

from mpifl.algorithms.fedavg import FedAvg


class FedExP(FedAvg):
    """FedExP (Jhunjhunwala et al. 2023, Algorithm 1):
    the server's step is the longer, the more silos disagree."""

    epsilon: PositiveFloat = 1e-3

    def round(self, server, cohort):
        mean = cohort.mean(self.train, w=server.state["w"])
        gained = mean.scalars["squares"] / 2 / (float(mean["delta"].square().sum()) + self.epsilon)
        server.state["w"] += max(1.0, gained) * mean["delta"]
        return mean.scalars

    def train(self, silo, w):
        run = silo.train_locally(w, self.local)
        squares = float(run.delta.square().sum())
        return silo.update(delta=run.delta, squares=squares, train_loss=run.loss)
