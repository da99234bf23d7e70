"""As someone who knows JAX writes them."""

from jax_programs.dynamics import bodies_by_pairs as bodies_by_pairs
from jax_programs.dynamics import heat_in_a_plate as heat_in_a_plate
from jax_programs.linear_algebra import cholesky as cholesky
from jax_programs.sequences import hidden_markov_model as hidden_markov_model
from jax_programs.sequences import kalman_filter as kalman_filter
from jax_programs.sequences import soft_alignment as soft_alignment
