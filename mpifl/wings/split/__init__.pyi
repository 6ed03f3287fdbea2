from . import (
    dialogue as dialogue,
    network_half as network_half,
)
from .column_silo import (
    ColumnSilo as ColumnSilo,
)
from .dialogue import (
    Dialogue as Dialogue,
)
from .label_gate import (
    Gate as Gate,
    randomised as randomised,
)
from .line_codecs import (
    LONGEST as LONGEST,
    PLAIN_LINES as PLAIN_LINES,
    LineCodecs as LineCodecs,
)
from .network_half import (
    begun as begun,
    order as order,
)
from .speakers import (
    Speaker as Speaker,
    follow as follow,
    speaker_of as speaker_of,
)
from .split_answers import (
    Network as Network,
    all_together as all_together,
)
from .split_training import (
    placement as placement,
)
from .split_wing import (
    wing as wing,
)
from .splitnn import (
    SplitNN as SplitNN,
)
from .wire_lines import (
    MessageMark as MessageMark,
    SplitMessage as SplitMessage,
    SplitMessages as SplitMessages,
)
