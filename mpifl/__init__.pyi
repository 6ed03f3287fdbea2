from .algorithms import Algorithm as Algorithm, Cohort as Cohort, FedAvg as FedAvg, Server as Server
from .cli import Run as Run, Sweep as Sweep, train as train
from .common import InputError as InputError, RoundLost as RoundLost
from .learning.models import Classifier as Classifier
from .learning.tasks import Task as Task
from .report.observers import Observer as Observer
from .run.job import Job as Job
from .run.job.tables import Draw as Draw
from .silo import Silo as Silo
from .silo.steps import Constant as Constant, Proximal as Proximal
from .wings.robust import WeightRule as WeightRule
from .wire import Update as Update, summed as summed, uniform as uniform

__version__: str
