from . import checkpoint as checkpoint, serialization as serialization
from .checkpoint import CheckpointError as CheckpointError
from .cohort import CohortTable as CohortTable
from .conversion import convert as convert
from .environment import (
    note_lost as note_lost,
    read_environment as read_environment,
    why_lost as why_lost,
    write_environment as write_environment,
)
from .folder import (
    Claim as Claim,
    check_run as check_run,
    claim as claim,
    describe as describe,
    same_data as same_data,
)
from .job import (
    Job as Job,
    check_as_read as check_as_read,
    check_job as check_job,
    read_job as read_job,
    read_kept as read_kept,
)
from .outline import (
    HARMLESS as HARMLESS,
    Outline as Outline,
    differing_keys as differing_keys,
    flat as flat,
    read_outline as read_outline,
)
from .private import check_private_data as check_private_data
from .private_silos import is_silo_level as is_silo_level, why_no_statistics as why_no_statistics
from .records import (
    GrowingMetrics as GrowingMetrics,
    encode_record as encode_record,
    number as number,
    read_metrics as read_metrics,
    trim_metrics as trim_metrics,
)
from .released import ReleasedFile as ReleasedFile
from .state_files import StateFiles as StateFiles
from .tables import (
    Checkpoint as Checkpoint,
    Evaluate as Evaluate,
    Model as Model,
    Tracking as Tracking,
)
from .vertical import check_bottom as check_bottom, check_vertical_data as check_vertical_data
from .weights import (
    MADE_WITH as MADE_WITH,
    ROUND as ROUND,
    load_final as load_final,
    load_initial as load_initial,
    load_weights as load_weights,
    metadata_of as metadata_of,
    round_of as round_of,
)
from .writer import Writer as Writer
