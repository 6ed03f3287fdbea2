from .compression import (
    COMPRESSIONS as COMPRESSIONS,
    compression_of as compression_of,
    filters_of as filters_of,
    kept_in as kept_in,
)
from .folder import (
    AGREED as AGREED,
    check_free as check_free,
    check_room as check_room,
    partial as partial,
    scratch as scratch,
    unwritable as unwritable,
    written_atomically as written_atomically,
)
from .layout import PIECE as PIECE, Section as Section
from .ledger import FILE as FILE, Ledger as Ledger, digest_of as digest_of
from .making import default_jobs as default_jobs, make_shards as make_shards
from .writing import NewShard as NewShard, Writer as Writer
