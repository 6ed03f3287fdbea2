"""Federated learning over MPI: one model, trained on data that may not leave its silos."""

__version__ = "0.1.0"
