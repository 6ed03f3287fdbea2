from . import checkpoint as checkpoint
from .checkpoint import CheckpointError as CheckpointError
from .folder import (
    HARMLESS as HARMLESS,
    Claim as Claim,
    check_run as check_run,
    claim as claim,
    describe as describe,
    encode_record as encode_record,
    note_lost as note_lost,
    number as number,
    read_environment as read_environment,
    read_metrics as read_metrics,
    rss_mb as rss_mb,
    same_data as same_data,
    trim_metrics as trim_metrics,
    why_lost as why_lost,
    write_environment as write_environment,
)
from .job import (
    Checkpoint as Checkpoint,
    CohortTable as CohortTable,
    Job as Job,
    Model as Model,
    check_job as check_job,
    differing_keys as differing_keys,
    flat as flat,
    read_job as read_job,
    read_kept as read_kept,
)
from .weights import load_weights as load_weights
from .writer import Writer as Writer
