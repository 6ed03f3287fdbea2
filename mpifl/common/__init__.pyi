from . import (
    cache as cache,
    global_streams as global_streams,
    lock as lock,
    mapped as mapped,
    rng as rng,
)
from .bounds import (
    LARGEST_FIGURE as LARGEST_FIGURE,
)
from .command_line import (
    CommandLine as CommandLine,
)
from .errors import (
    BeyondRange as BeyondRange,
    BudgetSpent as BudgetSpent,
    DeviceLost as DeviceLost,
    Diverged as Diverged,
    InputError as InputError,
    Misled as Misled,
    RankLost as RankLost,
    RoundLost as RoundLost,
    ShardError as ShardError,
    SharedVectorChanged as SharedVectorChanged,
    StartLost as StartLost,
    Unlike as Unlike,
    Unwritable as Unwritable,
    noted as noted,
    one_line as one_line,
    place_of as place_of,
    ranks_named as ranks_named,
    visible as visible,
)
from .files import (
    Buffer as Buffer,
    allow_many_open_files as allow_many_open_files,
    check_named as check_named,
    check_open_files as check_open_files,
    digest_of as digest_of,
    no_link as no_link,
    read_start as read_start,
    read_whole as read_whole,
    remove_left_behind as remove_left_behind,
    sha256_of as sha256_of,
    write_atomic as write_atomic,
    write_named as write_named,
    write_needed as write_needed,
    written_after as written_after,
)
from .global_streams import (
    places as places,
    seeded as seeded,
)
from .lock import (
    cannot_be_written as cannot_be_written,
)
from .names import (
    Names as Names,
    count_of as count_of,
)
from .plugins import (
    code_of as code_of,
    load_plugin as load_plugin,
    own_mistake as own_mistake,
)
from .rng import (
    derive as derive,
    numpy_stream as numpy_stream,
)
from .suggesting import (
    by_weight as by_weight,
    check_there as check_there,
    choices as choices,
    closed as closed,
    did_you_mean as did_you_mean,
    hint_of as hint_of,
    keys_at as keys_at,
    plain as plain,
    suggested as suggested,
)
from .toml import (
    LARGEST_FILE as LARGEST_FILE,
    Table as Table,
    inline_table as inline_table,
    read_toml as read_toml,
    tables as tables,
    wrong_in as wrong_in,
)
