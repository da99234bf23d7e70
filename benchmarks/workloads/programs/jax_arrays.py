"""As someone who knows JAX writes them."""

from jax_programs.dynamics import bodies_by_pairs, heat_in_a_plate
from jax_programs.linear_algebra import cholesky
from jax_programs.sequences import hidden_markov_model, kalman_filter, soft_alignment

__all__ = [
    "bodies_by_pairs",
    "cholesky",
    "heat_in_a_plate",
    "hidden_markov_model",
    "kalman_filter",
    "soft_alignment",
]
