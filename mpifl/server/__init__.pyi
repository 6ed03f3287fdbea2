from .optimizers import OPTIMIZERS as OPTIMIZERS, SGD as SGD, ServerOptimizer as ServerOptimizer
from .server import Server as Server
