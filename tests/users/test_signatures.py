"""What `help`, `inspect.signature`, an editor's hover and tab completion show of every public name."""

import ast
import importlib
import inspect
import pydoc
import rlcompleter

import pytest

import chainrule
from chainrule import ENGINE, Value, engine, ops
from project import ROOT

MODULES = ("chainrule", *(f"chainrule.{name}" for name in ("data", "losses", "nn", "optim", "plot", "training")))
COMPLETED = [f"chainrule.{name}" for name in ["compiler", "drawing", "files", "objectives", "transforms", "wasm"]]
OPS = [name for row in ops.BUILT_IN for name in (row.name, *row.aliases)]


def public_callables():
    """Their places and themselves; of classes also the public methods."""
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in dir(module):
            thing = getattr(module, name)
            if callable(thing):
                yield f"{module_name}.{name}", thing
            for method in dir(thing) if inspect.isclass(thing) else ():
                ours = method not in dir(Exception) and not method.startswith("_")
                if ours and callable(getattr(thing, method)):
                    yield f"{module_name}.{name}.{method}", getattr(thing, method)


CALLABLES = dict(public_callables())


def test_all_of_them_are_looked_at():
    assert {"chainrule.exp", "chainrule.abs", "chainrule.compile", "chainrule.fit"} <= CALLABLES.keys()
    assert {"chainrule.Value.backward", "chainrule.Value.arcsin", "chainrule.nn.MLP.parameters"} <= CALLABLES.keys()
    assert {"chainrule.optim.SGD.step", "chainrule.losses.hinge", "chainrule.data.moons"} <= CALLABLES.keys()


@pytest.mark.parametrize("place", CALLABLES)
def test_a_callable_tells_its_name_its_arguments_and_what_it_does(place):
    thing = CALLABLES[place]
    assert thing.__name__ == place.rpartition(".")[2]
    assert thing.__qualname__.rpartition(".")[2] == thing.__name__
    assert inspect.getdoc(thing)
    names = list(inspect.signature(thing).parameters)
    assert names != ["operands", "named"], "which says nothing"
    assert thing.__name__ in pydoc.plain(pydoc.render_doc(thing))


@pytest.mark.parametrize("name", OPS)
def test_an_op_and_its_method_take_the_operands_of_the_table(name):
    row = next(row for row in ops.BUILT_IN if name in (row.name, *row.aliases))
    assert f"{row.name}{inspect.signature(row)}" == row.signature
    for value_class in (Value, engine.Value):
        taken = arguments(getattr(value_class(0.5), name))
        assert [argument for argument, _ in taken] == list(row.parameters[1:])
        assert [default for _, default in taken if default is not inspect.Parameter.empty] == list(row.defaults)
        assert list(inspect.signature(getattr(value_class, name)).parameters) == list(row.parameters)


def test_an_op_of_the_users_own_has_the_signature_of_its_function():
    @chainrule.op(None, None, name="told_twice")
    def told_twice(first, second=2.0):
        """The first operand, twice."""
        return first + first

    assert str(inspect.signature(told_twice)) == "(first, second=2.0)"
    assert str(inspect.signature(Value(1.0).told_twice)) == "(second=2.0)"
    assert (told_twice.__name__, Value.told_twice.__name__) == ("told_twice", "told_twice")
    assert Value.told_twice.__doc__ == "The first operand, twice."


def test_the_table_s_class_has_a_signature_of_its_own():
    assert list(inspect.signature(ops.Op).parameters)[:3] == ["name", "forward", "partials"]


@pytest.mark.parametrize("name", [*MODULES, *COMPLETED])
def test_tab_completion_shows_the_public_names_only(name):
    module = importlib.import_module(name)
    hidden = {"abs", "pow", "compile"} if name == "chainrule" else set()  # from `import *`, as they are Python's
    assert set(dir(module)) == {*module.__all__, *hidden}
    assert all(hasattr(module, public) for public in dir(module))
    assert not any(public.startswith("_") for public in dir(module))
    assert dir(module) == rlcompleted(name)


def rlcompleted(name):
    """What the interpreter offers after `name.` and the Tab key, without what is to be asked for by an underscore."""
    completer = rlcompleter.Completer({"module": importlib.import_module(name)})
    offered = [text.removeprefix("module.").rstrip("()") for text in completer.attr_matches("module.")]
    return sorted(set(offered))


def shared(name):
    return not name.startswith("_") and name in dir(engine.Value)


@pytest.mark.skipif(ENGINE != "native", reason="compares the engines")
@pytest.mark.parametrize("name", [name for name in dir(Value) if shared(name)])
def test_the_engines_say_the_same_of_themselves(name):
    theirs, ours = inspect.getattr_static(engine.Value, name), inspect.getattr_static(Value, name)
    assert inspect.getdoc(ours) == inspect.getdoc(theirs)
    if callable(theirs):
        assert arguments(getattr(Value(0.5), name)) == arguments(getattr(engine.Value(0.5), name))


def arguments(bound):
    return [(parameter.name, parameter.default) for parameter in inspect.signature(bound).parameters.values()]


@pytest.mark.skipif(ENGINE != "native", reason="reads the native engine")
def test_what_the_native_engine_says_of_its_functions_is_what_type_checkers_read():
    from chainrule import _native

    stub = ast.parse((ROOT / "src/chainrule/_native.pyi").read_text())
    told = {node.name: [argument.arg for argument in node.args.args] for node in stub.body if hasattr(node, "args")}
    found = {name: thing for name, thing in vars(_native).items() if inspect.isbuiltin(thing)}
    assert {name: list(inspect.signature(thing).parameters) for name, thing in found.items()} == told
    assert all(thing.__doc__ for thing in found.values())
    methods = [thing for name, thing in vars(Value).items() if inspect.ismethoddescriptor(thing) and callable(thing)]
    assert len(methods) > len(OPS)
    assert all(inspect.signature(thing) for thing in methods)
