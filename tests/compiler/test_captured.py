"""A compiled function sees every new number of the Values that it captures, and reads them only if there is one."""

import numpy as np
import pytest

import chainrule
from chainrule import Value
from chainrule.compiler import compile


@pytest.fixture(params=["llvm", "interpreter"])
def backend(request):
    return request.param


FIVE = Value(5.0).__reduce__()[2]  # made here, for a new Value counts as well
WRITERS = {  # every way to give a Value that exists another number
    "an assignment": lambda w: setattr(w, "data", 5.0),
    "in place": lambda w: setattr(w, "data", w.data + 2.0),
    "a state": lambda w: w.__setstate__(FIVE),
    "a second init": lambda w: w.__init__(5.0),
    "many at once": lambda w: chainrule.core.bulk.write_data([w], np.array([5.0])),
    "an optimizer": lambda w: [setattr(w, "grad", -2.0), chainrule.optim.SGD([w], lr=1.0).step()],
    "training": lambda w: compile(lambda x: -2.0 * w * x).train(chainrule.optim.SGD([w], lr=1.0), [1.0]),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_program_sees_every_new_number_of_what_it_captures(write, backend):
    w = Value(3.0)
    program = compile(lambda x: w * w * x, backend=backend)
    xs = [1.0, 2.0, 3.0]
    for _ in range(2):
        assert program.value_and_grad(2.0) == (18.0, [12.0])
        assert program.batch_value_and_grad(xs, threads=2) == (18.0, [12.0])
    write(w)
    assert program.value_and_grad(2.0) == (50.0, [20.0])
    assert program.batch_value_and_grad(xs, threads=2) == (50.0, [20.0])


@pytest.mark.skipif(chainrule.ENGINE != "native", reason="the Python engine does not count what is written")
def test_what_is_captured_is_read_again_only_if_some_number_was_replaced(monkeypatch):
    ws, reads = [Value(3.0), Value(4.0)], []
    program = compile(lambda x: ws[0] * ws[1] * x, wrt=ws)
    module = chainrule.compiler.run.machine
    monkeypatch.setattr(module, "read_data", lambda *given, read=module.read_data: (reads.append(1), read(*given)))
    for _ in range(3):
        program.value_and_grad(2.0)
        ws[0].grad += 1.0  # is no reason
    assert len(reads) == 1
    Value(1.0).data = 2.0  # any Value's number counts
    program.value_and_grad(2.0)
    assert len(reads) == 2
