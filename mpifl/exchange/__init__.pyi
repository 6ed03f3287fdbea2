from .admission import Knowledge as Knowledge
from .at_workers import AtWorkers as AtWorkers
from .batching import Batching as Batching
from .by_parts import ByParts as ByParts
from .cohort import Cohort as Cohort
from .context import WorkerContext as WorkerContext
from .costs import Ledger as Ledger
from .crew import Follower as Follower, Leader as Leader
from .disclosure import KindsAlone as KindsAlone, first_of as first_of
from .federation import Federation as Federation
from .outcome import Outcome as Outcome
from .party import Party as Party, Terms as Terms
from .placement import place as place
from .worker import Worker as Worker
