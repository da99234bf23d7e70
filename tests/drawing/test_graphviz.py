"""Graphviz draws without a word, and drawings fit the cell of a notebook."""

import os
import random
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

import chainrule
from chainrule import Value, data, draw, losses, nn
from chainrule.drawing.graphviz import _without_lines

READABLE = 900  # points: in a cell of 848 pixels, which is one in a window of 1,280, letters are 10 pixels high


def test_the_first_drawing_says_nothing():
    code = "from chainrule import Value; assert (Value(2.0, label='a') * 3.0)._repr_svg_()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_only_warnings_about_fonts_are_left_out(capfd):
    with _without_lines("Fontconfig warning"):
        os.write(2, b"Fontconfig warning: unknown element\nsomething else\n")
    os.write(2, b"and this\n")
    assert capfd.readouterr().err == "something else\nand this\n"


def test_drawing_works_without_a_standard_error():
    code = "import os; os.close(2); from chainrule import Value; print(len((Value(2.0) * 3.0)._repr_svg_()))"
    assert int(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout) > 1000


@pytest.fixture(scope="module")
def program_and_model():
    random.seed(1337)
    model, points = nn.MLP(2, [16, 16, 1]), data.micrograd_moons()
    inputs = [[Value(x) for x in point] for point in points.inputs]
    loss = losses.hinge([model(x) for x in inputs], points.targets) + losses.l2(1e-4)(model.parameters())
    return chainrule.compile(loss, wrt=model.parameters()), model


def test_a_program_with_its_backward_pass_is_long_rather_than_wide(program_and_model):
    program, model = program_and_model
    for drawing in (draw(program, model=model), draw(program)):
        root = ET.fromstring(drawing.svg)
        assert float(root.get("width").removesuffix("pt")) < READABLE
        height = {element.text: float(element.get("y")) for element in root.iter() if element.tag.endswith("text")}
        cards = [node.title for node in drawing.picture.nodes if node.kind == "computed"]
        for title in cards:
            assert (height[title] > height["v9 = result"]) == title.startswith("d"), title
        assert len(cards) == 28


def test_loops_in_time_stand_one_below_the_other_too():
    stiffness, friction, position, speed = Value(4.0), Value(0.3), Value(1.0), Value(0.0)
    for _ in range(500):
        force = -stiffness * position - friction * speed
        position, speed = position + 0.01 * speed, speed + 0.01 * force
    drawing = draw(chainrule.compile(position, wrt=[stiffness, friction]))
    root = ET.fromstring(drawing.svg)
    frames = [group for group in root.iter("{http://www.w3.org/2000/svg}g") if group.get("class") == "cluster"]
    edges = []  # of the frames: where they begin and end, from top to bottom
    for frame in frames:
        path = next(element for element in frame.iter() if element.tag.endswith("path"))
        heights = [float(y) for y in re.findall(r"-?[\d.]+,(-?[\d.]+)", path.get("d"))]
        edges += [min(heights), max(heights)]
    assert len(frames) == len(drawing.picture.groups) == 4
    assert edges == sorted(edges)


def test_what_is_wider_than_a_cell_gets_the_width_of_the_cell(program_and_model):
    program, _ = program_and_model
    for shown in (draw(program)._repr_svg_(), program._repr_svg_()):
        assert re.match(r'<svg width="100%"\s+viewBox="0\.00 0\.00 \d+', shown)
        assert ET.fromstring(shown).get("height") is None
    small = draw(Value(2.0) * 3.0)
    assert small._repr_svg_() == small.svg
    assert draw(program).svg.startswith('<svg width="7')  # files keep their size
