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
from .pooling_layers import (
    MaxPool2x2 as MaxPool2x2,
)
