"""An array program as one operation of JAX: machine code of ours on a CPU, and XLA's everywhere else.

JAX asks for its *lowering* when it knows the platform. On a CPU that is a call of what LLVM has compiled (`foreign`).
On other platforms it is the computation that `loops` spells out, and so it is where the code is to be exported, for the
addresses in a call are those of this process. Derivatives and batches are those of that computation too: JAX transforms
it by its own rules, and XLA compiles what comes out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir, xla

from chainrule.compiler.backends.xla.foreign import target, why_not
from chainrule.compiler.backends.xla.loops import computation
from chainrule.compiler.passes.arrange import arranged
from chainrule.compiler.passes.program import Array, ArrayProgram


class Computation:
    """A pure function from the leaves of a program to its results, in the type of the leaves.

    `own` makes the same program as LLVM prefers it.
    """

    def __init__(self, program: ArrayProgram, own: Callable[[], ArrayProgram] | None = None) -> None:
        self.leaves, self.results = list(program.leaves.values()), program.results
        self.by_xla = computation(program, program.results)
        self._own, self._described = own or (lambda: program), dict[str, Any]()
        self._lock = threading.Lock()

    def __call__(self, leaves: Mapping[Array, Any]) -> list[Any]:
        if not leaves or why_not():
            return self.by_xla(leaves)
        dtype = jnp.result_type(*leaves.values(), jnp.float32)
        vectors = [jnp.asarray(leaves[array], dtype) for array in self.leaves]
        if not all(map(_is_plain, vectors)):
            return self.by_xla(leaves)
        return program_p.bind(*vectors, computation=self)  # type: ignore[no-any-return]

    def on_vectors(self, *vectors: Any) -> list[Any]:
        """The computation that XLA compiles, of leaves in their order."""
        return self.by_xla(dict(zip(self.leaves, vectors, strict=True)))

    def described(self, dtype: str) -> Any:
        """How XLA calls the machine code for numbers of this type, which is compiled the first time."""
        from chainrule.compiler.backends.llvm.called import Called, Copy

        with self._lock:
            if dtype not in self._described:
                program, places = arranged(self._own())
                called = Called(program, dtype, places)
                ins, outs = [
                    [Copy(k, 0, array) for k, array in enumerate(arrays)]
                    for arrays in (program.leaves.values(), program.results)
                ]
                self._described[dtype] = called.once(ins, outs)
            return self._described[dtype]

    def __repr__(self) -> str:
        return f"<{len(self.leaves)} leaves to {len(self.results)} results>"


def _is_plain(vector: Any) -> bool:
    """Whether an array is like one that is made here; others are sharded or vary over a mesh, and are left to XLA."""
    return bool(jax.typeof(vector) == jax.typeof(jnp.zeros(vector.shape, vector.dtype)))


def _shapes(*vectors: Any, computation: Computation) -> list[Any]:
    return [vectors[0].update(shape=(array.size,)) for array in computation.results]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, computation: Computation) -> tuple[Any, Any]:
    moving = [k for k, tangent in enumerate(tangents) if not isinstance(tangent, ad.Zero)]

    def along(*some: Any) -> list[Any]:
        vectors = list(primals)
        for k, vector in zip(moving, some, strict=True):
            vectors[k] = vector
        return computation.on_vectors(*vectors)

    return jax.jvp(along, [primals[k] for k in moving], [tangents[k] for k in moving])  # type: ignore[no-any-return]


def _batch(vectors: Sequence[Any], axes: Sequence[Any], *, computation: Computation) -> tuple[Any, Any]:
    found = jax.vmap(computation.on_vectors, in_axes=tuple(axes))(*vectors)
    return found, [0] * len(found)


def _lower_for_xla(context: mlir.LoweringRuleContext, *operands: Any, computation: Computation) -> Any:
    return mlir.lower_fun(computation.on_vectors, multiple_results=True)(context, *operands)


def _lower_for_a_cpu(context: mlir.LoweringRuleContext, *operands: Any, computation: Computation) -> Any:
    if context.module_context.lowering_parameters.for_export:
        return _lower_for_xla(context, *operands, computation=computation)
    dtype = context.avals_in[0].dtype.name
    described = computation.described(dtype)
    context.module_context.add_keepalive(described)
    return jax.ffi.ffi_lowering(target(dtype))(context, *operands, **described.attributes)


program_p = Primitive("chainrule_program")
program_p.multiple_results = True
program_p.def_impl(partial(xla.apply_primitive, program_p))
program_p.def_abstract_eval(_shapes)
ad.primitive_jvps[program_p] = _jvp
batching.primitive_batchers[program_p] = _batch
mlir.register_lowering(program_p, _lower_for_xla)
mlir.register_lowering(program_p, _lower_for_a_cpu, platform="cpu")
