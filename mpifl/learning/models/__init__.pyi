from .bias import (
    Bias as Bias,
)
from .building import (
    MODELS as MODELS,
    build as build,
    examples as examples,
)
from .classifier import (
    Classifier as Classifier,
)
from .generation import (
    GoingOn as GoingOn,
    check_room as check_room,
    go_on as go_on,
    inputs_of as inputs_of,
)
from .pooling_layers import (
    MaxPool2x2 as MaxPool2x2,
)
from .pretrained import (
    write_pretrained as write_pretrained,
)
