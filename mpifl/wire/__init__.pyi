from . import (
    memory as memory,
    nodes as nodes,
    pipeline as pipeline,
    point_to_point as point_to_point,
    relayed_broadcast as relayed_broadcast,
    stamped_vectors as stamped_vectors,
    transport as transport,
)
from .memory import (
    Memory as Memory,
    pieces_of as pieces_of,
    possible as possible,
)
from .messages import (
    DTYPES as DTYPES,
    LARGEST as LARGEST,
    MOST_SCALARS as MOST_SCALARS,
    MOST_VECTORS as MOST_VECTORS,
    STOPPED as STOPPED,
    AnyReply as AnyReply,
    ArraySpec as ArraySpec,
    Combination as Combination,
    Count as Count,
    Digest as Digest,
    Done as Done,
    Figure as Figure,
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
)
from .nodes import (
    RANKS_PER_NODE as RANKS_PER_NODE,
    Nodes as Nodes,
    split as split,
)
from .pipeline import (
    ExpectedPiece as ExpectedPiece,
    Pipeline as Pipeline,
)
from .point_to_point import (
    EAGER as EAGER,
    MOST_STALE as MOST_STALE,
    RECORD_LIMIT as RECORD_LIMIT,
)
from .rank_platform import (
    HERE as HERE,
    Platform as Platform,
)
from .relayed_broadcast import (
    Spreading as Spreading,
    is_long as is_long,
)
from .requests import (
    AnyRequest as AnyRequest,
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
from .transport import (
    Transport as Transport,
)
from .update import (
    Mean as Mean,
    Numbers as Numbers,
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
