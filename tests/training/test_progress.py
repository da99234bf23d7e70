"""The progress bar: whole in a terminal of 80 columns, and one in a notebook that is replaced as epochs go by."""

import re
import sys
import time
from types import SimpleNamespace

import pytest

from chainrule import data, fit, losses, nn
from chainrule.training import progress

METRICS = {"accuracy": losses.accuracy, "balanced_accuracy": losses.accuracy}


def train(epochs=3, **options):
    model = nn.MLP(2, [4, 1], rng=1)
    return fit(model, losses.hinge, data.moons(n=20, seed=1), epochs=epochs, compiled=False, **options)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_terminal_shows_the_whole_bar_and_no_number_apart_from_its_name(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    history = train(metrics=METRICS, validation=data.moons(n=20, seed=1))
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"━{12} 3/3 \d:\d\d:\d\d loss 0", lines[0])
    assert max(map(len, lines)) <= columns
    shown = [pair for line in lines for pair in re.findall(r"([a-z_]+) (\d\S*)", line)]
    assert shown == [(name, f"{number:.4g}") for name, number in history.last.items()]


def test_a_name_that_is_too_long_does_not_push_the_bar_away(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    train(metrics={"a_name_of_more_than_thirty_letters": losses.accuracy})
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"━{12} 3/3 \d:\d\d:\d\d loss ", lines[0])


@pytest.fixture
def outputs(monkeypatch):
    """What a notebook shows: the one output, each time that it is replaced."""
    display = pytest.importorskip("IPython.display")
    shown = []
    handle = SimpleNamespace(update=lambda bundle, raw: shown.append(bundle))

    def show(bundle, raw, display_id):
        assert not shown, "a second bar"
        shown.append(bundle)
        return handle

    monkeypatch.setattr(display, "display", show)
    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    return shown


def test_a_notebook_shows_one_bar_that_ends_full_with_the_last_numbers(outputs, capsys):
    history = train(metrics=METRICS)
    assert capsys.readouterr().out == ""
    assert outputs[0]["text/plain"] == "─" * 12 + " 0%  0/3  0:00:00"
    last = outputs[-1]
    assert re.fullmatch(
        rf"━{{12}} 100%  3/3  0:00:0\d  loss {history.loss[-1]:.4g}  accuracy 1  balanced_accuracy 1",
        last["text/plain"].replace(f"{history['accuracy'][-1]:.4g}", "1"),
    )
    assert '<progress value="3" max="3"' in last["text/html"]
    assert "100%" in last["text/html"]


def test_many_short_epochs_do_not_flood_the_notebook(outputs):
    started = time.monotonic()
    train(epochs=400)
    assert len(outputs) <= 3 + (time.monotonic() - started) / progress.BETWEEN


def test_an_interrupted_run_leaves_the_numbers_that_it_came_to(outputs):
    def interrupt(training):
        if training.epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(epochs=4, callbacks=[interrupt])
    assert "50%  2/4" in outputs[-1]["text/plain"]


def test_names_of_metrics_are_text_not_markup(outputs):
    train(metrics={"<b>": losses.accuracy})
    assert "&lt;b&gt;" in outputs[-1]["text/html"]


def test_a_terminal_of_ipython_is_no_notebook(monkeypatch):
    assert not progress._in_notebook()
    for shell, answer in ((None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=object()), True)):
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        assert progress._in_notebook() is answer
