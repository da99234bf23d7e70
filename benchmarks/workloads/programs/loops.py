"""As their users write them."""

from programs.dynamics import bodies_by_pairs, heat_in_a_plate
from programs.linear_algebra import cholesky
from programs.sequences import hidden_markov_model, kalman_filter, soft_alignment

__all__ = [
    "bodies_by_pairs",
    "cholesky",
    "heat_in_a_plate",
    "hidden_markov_model",
    "kalman_filter",
    "soft_alignment",
]
