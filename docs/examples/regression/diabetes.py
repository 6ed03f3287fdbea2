"""scikit-learn's diabetes data as three practices: what `data-prep partition diabetes:examples` asks."""

import numpy as np
from sklearn.datasets import load_diabetes


def examples(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x [442, 10], y [442], the disease's progression, and silo [442]: whose patient."""
    x, y = load_diabetes(return_X_y=True)
    x = x / x.std(0)
    silo = np.digitize(x[:, 0], np.quantile(x[:, 0], [1 / 3, 2 / 3]))
    return x.astype(np.float32), (y / 100).astype(np.float32), silo
