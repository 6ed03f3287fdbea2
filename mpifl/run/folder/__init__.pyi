from . import (
    checkpoint as checkpoint,
    serialization as serialization,
)
from .checkpoint import (
    CheckpointError as CheckpointError,
)
from .conversion import (
    convert as convert,
)
from .data_digest import (
    describe as describe,
    kept_of as kept_of,
    same_data as same_data,
)
from .environment import (
    OWN as OWN,
    note_before as note_before,
    note_lost as note_lost,
    read_environment as read_environment,
    why_lost as why_lost,
    write_environment as write_environment,
)
from .metrics_file import (
    GrowingMetrics as GrowingMetrics,
    amend_metrics as amend_metrics,
    encode_record as encode_record,
    number as number,
    read_metrics as read_metrics,
    trim_metrics as trim_metrics,
)
from .run_folder import (
    Claim as Claim,
    changed_code as changed_code,
    check_run as check_run,
    claim as claim,
)
from .state_files import (
    Seal as Seal,
    StateFiles as StateFiles,
)
from .weights_file import (
    FROZEN as FROZEN,
    MADE_WITH as MADE_WITH,
    ROUND as ROUND,
    check_frozen as check_frozen,
    load_final as load_final,
    load_initial as load_initial,
    load_weights as load_weights,
    metadata_of as metadata_of,
    round_of as round_of,
    sha256_of_frozen as sha256_of_frozen,
    told_round as told_round,
)
from .writer import (
    StateWriter as StateWriter,
)
