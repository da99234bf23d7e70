"""As their users write them."""

from programs.dynamics import bodies_by_pairs as bodies_by_pairs
from programs.dynamics import heat_in_a_plate as heat_in_a_plate
from programs.linear_algebra import cholesky as cholesky
from programs.sequences import hidden_markov_model as hidden_markov_model
from programs.sequences import kalman_filter as kalman_filter
from programs.sequences import soft_alignment as soft_alignment
