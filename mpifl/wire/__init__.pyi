from . import (
    launcher as launcher,
    point_to_point as point_to_point,
    spreading as spreading,
    transport as transport,
)
from .crews import Crew as Crew, why_no_crews as why_no_crews
from .deaths import renumbered as renumbered, survivable as survivable
from .ground import Ground as Ground
from .joining import (
    abort_world as abort_world,
    die as die,
    leave as leave,
    library as library,
    met as met,
    world as world,
)
from .launcher import (
    last_word as last_word,
    leave_code as leave_code,
    own_launcher as own_launcher,
    started_by as started_by,
)
from .lines import Line as Line, Lines as Lines, Mark as Mark, floats as floats
from .memory import Memory as Memory, pieces_of as pieces_of, possible as possible
from .messages import (
    DTYPES as DTYPES,
    LARGEST as LARGEST,
    MOST_SCALARS as MOST_SCALARS,
    MOST_VECTORS as MOST_VECTORS,
    AnyReply as AnyReply,
    ArraySpec as ArraySpec,
    Combination as Combination,
    Count as Count,
    Digest as Digest,
    Done as Done,
    FileReply as FileReply,
    FinishReply as FinishReply,
    Header as Header,
    Message as Message,
    Name as Name,
    Purpose as Purpose,
    Reply as Reply,
    Report as Report,
    Scalar as Scalar,
    Text as Text,
    VectorHeader as VectorHeader,
    VectorSpec as VectorSpec,
    Verdict as Verdict,
    WindowNumber as WindowNumber,
    clean as clean,
)
from .mpi_facts import Facts as Facts, facts as facts
from .nodes import RANKS_PER_NODE as RANKS_PER_NODE, Nodes as Nodes
from .point_to_point import RECORD_LIMIT as RECORD_LIMIT
from .rails import Expected as Expected, Rail as Rail
from .requests import (
    Compute as Compute,
    Converse as Converse,
    Finish as Finish,
    Inventory as Inventory,
    KeepTestSet as KeepTestSet,
    Load as Load,
    Migrate as Migrate,
    Open as Open,
    Replicate as Replicate,
    Request as Request,
    Save as Save,
    SaveStatus as SaveStatus,
    ScoreBatches as ScoreBatches,
    Stop as Stop,
    read_request as read_request,
)
from .spreading import Spreading as Spreading, is_long as is_long
from .transport import Transport as Transport
from .updates import (
    Mean as Mean,
    Replica as Replica,
    Summed as Summed,
    Uniform as Uniform,
    Update as Update,
    combination as combination,
    summed as summed,
    uniform as uniform,
    unmarked as unmarked,
    wrong_length as wrong_length,
    wrong_vectors as wrong_vectors,
    wrong_weight as wrong_weight,
)
