from . import (
    dialogue as dialogue,
    network_part as network_part,
)
from .activation_codecs import (
    LONGEST as LONGEST,
    PLAIN_LINES as PLAIN_LINES,
    ActivationCodecs as ActivationCodecs,
)
from .column_silo import (
    ColumnSilo as ColumnSilo,
)
from .label_gate import (
    Gate as Gate,
    randomised as randomised,
)
from .network_part import (
    begun as begun,
    order as order,
)
from .split_answers import (
    Network as Network,
    all_together as all_together,
)
from .split_messages import (
    MessageMark as MessageMark,
    SplitMessage as SplitMessage,
    SplitMessages as SplitMessages,
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
