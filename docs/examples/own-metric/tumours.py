"""scikit-learn's breast cancer data (Wisconsin): what `data-prep partition tumours:examples` asks."""

import numpy as np
from sklearn.datasets import load_breast_cancer


def examples(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return x [569, 30], and y [569]: 1 where the tumour is malignant."""
    x, benign = load_breast_cancer(return_X_y=True)
    return ((x - x.mean(0)) / x.std(0)).astype(np.float32), 1 - benign
