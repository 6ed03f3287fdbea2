from . import launcher as launcher, point_to_point as point_to_point, transport as transport
from .deaths import survivable as survivable
from .joining import (
    abort_world as abort_world,
    forsake as forsake,
    leave as leave,
    library as library,
    see_off as see_off,
    world as world,
)
from .launcher import last_word as last_word, own_launcher as own_launcher, started_by as started_by
from .memory import Memory as Memory, pieces_of as pieces_of, possible as possible
from .messages import (
    DTYPES as DTYPES,
    LARGEST as LARGEST,
    Folded as Folded,
    Header as Header,
    Mean as Mean,
    Message as Message,
    Mirror as Mirror,
    Part as Part,
    Piece as Piece,
    Report as Report,
    Request as Request,
    Scalar as Scalar,
    Uniform as Uniform,
    Update as Update,
    VectorSpec as VectorSpec,
    Verdict as Verdict,
    Window as Window,
    clean as clean,
    uniform as uniform,
    unmarked as unmarked,
    wrong_length as wrong_length,
    wrong_weight as wrong_weight,
)
from .mpi_facts import Facts as Facts, facts as facts
from .nodes import RANKS_PER_NODE as RANKS_PER_NODE
from .transport import Transport as Transport
