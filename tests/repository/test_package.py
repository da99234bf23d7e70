"""Promises about the package as a whole: light, typed, documented, and the op table defined once."""

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import chainrule
from chainrule import engine, ops
from chainrule.native import header as c_text
from project import ROOT, copy_of_the_project

MODULES = [info.name for info in pkgutil.iter_modules(chainrule.__path__, "chainrule.") if "._" not in info.name]


def python(code, **options):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, **options).stdout


@pytest.mark.parametrize("engine_name", ["python", "native"] if chainrule.ENGINE == "native" else ["python"])
def test_importing_and_training_by_hand_needs_no_third_party_package(engine_name):
    code = """
import sys
sys.path = [p for p in sys.path if "site-packages" not in p] + [SOURCE]
import chainrule
from chainrule import Value, nn, optim, losses, data, fit, gradcheck, draw
model = nn.MLP(2, [2, 1])
fit(model, losses.hinge, data.moons(n=4), epochs=2, progress=False)._repr_html_()
draw(model).dot
draw(model([1.0, 2.0]), model=model, collapse="layer").dot
chainrule.hessian(lambda p: p["w"] * p["x"] ** 2)({"w": 1.0, "x": 2.0})
with chainrule.no_grad():
    chainrule.jvp(model, ([1.0, 2.0],), ([1.0, 0.0],))[1].detach()
print({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"__main__", "chainrule"})
""".replace("SOURCE", repr(str(Path(chainrule.__file__).parent.parent)))
    loaded = python(code, env={**os.environ, "CHAINRULE_ENGINE": engine_name})
    assert loaded.startswith(("{", "set()"))
    assert set(re.findall(r"'(\w+)'", loaded)) <= {"sitecustomize", "_distutils_hack", "usercustomize"}


def imports_outside_the_standard_library(source):
    imports = re.findall(r"^(?:from|import) ([\w.]+)", source, flags=re.MULTILINE)
    return {name for name in imports if name.partition(".")[0] not in sys.stdlib_module_names}


def test_the_python_engine_needs_only_the_op_table_and_the_standard_library():
    pending, found = [engine.__name__], set()
    while pending:
        name = pending.pop()
        found.add(name)
        source = Path(importlib.import_module(name).__file__).read_text()
        pending += imports_outside_the_standard_library(source) - found - {"chainrule", "chainrule.core"}
    assert found == {f"chainrule.{name}" for name in ("engine", "ops", "core.node", "core.walk")}


def public_objects():
    for name in [*chainrule.__all__, "abs", "pow", "compile"]:
        yield f"chainrule.{name}", getattr(chainrule, name)
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in getattr(module, "__all__", []):
            yield f"{module_name}.{name}", getattr(module, name)


EXEMPT = {"chainrule.ENGINE", "chainrule.nn.INITIALISERS"}  # data, not functions
DOCUMENTED = {name: thing for name, thing in public_objects() if name not in EXEMPT}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_name_has_a_docstring_with_an_example_that_runs(name):
    thing = DOCUMENTED[name]
    doc = thing.__doc__ or ""
    assert doc
    if type(thing) is type(sys):  # a module: its functions have the examples
        return
    assert ">>>" in doc
    if name.startswith("chainrule.") and name.count(".") == 1:
        module = sys.modules[getattr(thing, "__module__", "chainrule")] if callable(thing) else chainrule
        names = {**vars(chainrule), **vars(module), **{n: getattr(chainrule, n) for n in chainrule.__all__}}
        test = doctest.DocTestParser().get_doctest(doc, names, name, None, 0)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        assert runner.run(test).failed == 0


def test_every_name_in_all_exists():
    assert set(chainrule.__all__) <= set(dir(chainrule))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        chainrule.nothing  # noqa: B018


def test_the_type_signatures_are_those_of_the_table():
    fresh = python("import write_signatures; print(write_signatures.signatures(), end='')", cwd=ROOT / "tools")
    assert (ROOT / "src/chainrule/_signatures.pyi").read_text() == fresh, "run `make stubs`"


def test_the_page_of_the_ops_is_written_by_the_table():
    fresh = python("import write_ops_page; print(write_ops_page.op_table(), end='')", cwd=ROOT / "tools")
    assert (ROOT / "docs/reference/ops.md").read_text(encoding="utf-8") == fresh, "run `make stubs`"


def test_c_text_spells_numbers_exactly():
    assert c_text.spell(0.1) == (0.1).hex()
    assert str(1.0 - c_text.CText("x")) == "(0x1.0000000000000p+0 - x)"
    assert str(-(c_text.CText("x") - 2)) == "(-(x - 0x1.0000000000000p+1))"
    assert c_text.partials(ops.TABLE["lt"]) == [None, None]


def wheel(folder, **environment):
    """The wheel that pip builds in such an environment, and the engine that it gives when installed."""
    copy_of_the_project(folder)
    pip = [sys.executable, "-m", "pip", "-q"]
    quietly = {"check": True, "capture_output": True, "cwd": folder}
    environment = {**os.environ, **environment}
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    subprocess.run(build, env=environment, **quietly)
    (path,) = (folder / "dist").iterdir()
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", folder / "site", path], **quietly)
    code = "import sys; sys.path.insert(0, 'site'); import chainrule; print(chainrule.ENGINE, chainrule.__file__)"
    engine_name, where = python(code, cwd=folder, env={**os.environ, "CHAINRULE_ENGINE": ""}).split()
    assert Path(where) == folder / "site/chainrule/__init__.py"
    return path.name, engine_name


@pytest.mark.slow
def test_a_pure_wheel_runs_everywhere(tmp_path):
    name, engine_name = wheel(tmp_path, CHAINRULE_PURE="1")
    assert name.endswith("-py3-none-any.whl")
    assert engine_name == "python"
    assert {p.name for p in (ROOT / "src/chainrule/stepping/web").iterdir()} == {
        p.name for p in (tmp_path / "site/chainrule/stepping/web").iterdir()
    }


@pytest.mark.slow
def test_without_a_c_compiler_the_package_installs_and_works(tmp_path):
    assert wheel(tmp_path, CC="no-such-compiler")[1] == "python"


NEW_ROW = """
cubed = op("cubed", lambda x: x * x * x, (lambda out, x: 3.0 * (x * x),), "x to the third | cubed(2.0) = 8.0")
"""


@pytest.mark.slow
@pytest.mark.skipif(chainrule.ENGINE != "native", reason="needs a C compiler")
def test_a_row_added_to_the_table_is_all_that_a_new_op_needs(tmp_path):
    copy_of_the_project(tmp_path)
    table = tmp_path / "src/chainrule/ops.py"
    table.write_text(table.read_text() + NEW_ROW)
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tmp_path, check=True)
    code = """
import chainrule
from chainrule import engine, nn
assert chainrule.ENGINE == "native"
for Value in (chainrule.Value, engine.Value):
    x = Value(2.0)
    (x.cubed() + chainrule.cubed(x)).backward()
    print(x.grad, chainrule.cubed(3), x.cubed()._op, nn.Neuron(1, activation="cubed").activation)
print(chainrule.cubed.code < len(chainrule.ops.TABLE), "cubed" in dir(chainrule.core.value._module.Value))
"""
    out = python(
        code, env={**os.environ, "PYTHONPATH": str(tmp_path / "src"), "CHAINRULE_ENGINE": "native"}, cwd=tmp_path
    )
    assert out == "24.0 27.0 cubed cubed\n24.0 27.0 cubed cubed\nTrue True\n"


def test_what_needs_jax_is_left_out_where_there_is_none():
    """The paths in conftest.py are those of all modules that import jax."""
    source = (ROOT / "conftest.py").read_text()
    left_out = [ROOT / path for path in re.findall(r'"(src/chainrule/[^"]+)"', source)]
    for path in (ROOT / "src").rglob("*.py"):
        if re.search(r"^(?:import|from) jax", path.read_text(), flags=re.MULTILINE):
            assert any(path.is_relative_to(part) for part in left_out), path
    assert all(part.exists() for part in left_out)
