"""`fit`: the training loop, for those who would rather not write its five lines again.

    for epoch in range(100):
        loss = losses.mean_square([model(x) for x in xs], ys)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

`fit` is that loop, with batches, metrics, a progress bar, early stopping and a history around it.
"""

from chainrule.training.callbacks import EarlyStopping, Training
from chainrule.training.history import History
from chainrule.training.loop import fit

__all__ = ["EarlyStopping", "History", "Training", "fit"]
