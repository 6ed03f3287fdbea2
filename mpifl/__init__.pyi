from .aggregation import WeightRule as WeightRule
from .algorithms import Algorithm as Algorithm, Cohort as Cohort, FedAvg as FedAvg
from .common import InputError as InputError, RoundLost as RoundLost
from .models import Classifier as Classifier
from .run import Job as Job
from .server import Draw as Draw, Server as Server
from .silo import Constant as Constant, Proximal as Proximal, Silo as Silo
from .tasks import Task as Task
from .tracking import Observer as Observer
from .training import Run as Run, train as train
from .wire import Update as Update, summed as summed, uniform as uniform

__version__: str
