"""`fit`: the training loop, for those who would rather not write its five lines again.

    for epoch in range(100):
        loss = losses.mean_square([model(x) for x in xs], ys)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

`fit` is that loop, with batches, metrics, a progress bar, early stopping and a history around it.
"""

from chainrule.training.history import EarlyStopping, History, Training
from chainrule.training.loop import fit

__all__ = ["EarlyStopping", "History", "Training", "fit"]


def __dir__() -> list[str]:
    return __all__


for _public in (EarlyStopping, History, Training, fit):
    _public.__module__ = __name__  # where users know them: in tracebacks, pickles and the reference
