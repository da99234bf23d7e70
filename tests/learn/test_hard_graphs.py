"""Graphs that tell right walks from wrong ones: their gradients are PyTorch's, and nobody follows every path."""

import random

import pytest
import torch

from chainrule import closures
from chainrule.learn.grading import grade
from chainrule.learn.hard_graphs import AGAIN, LEAVES, Sums, diamonds, random_sums, walked
from chainrule.learn.lesson_files import load_course
from mutants import time_limit

EXERCISES = load_course().exercises


@pytest.mark.parametrize("count", [6, 14, 32])
def test_gradients_are_those_of_pytorch(count):
    for seed in range(10):
        graph = random_sums(seed, count)
        nodes = [torch.tensor(leaf, requires_grad=True) for leaf in graph.leaves]
        for i, j in graph.operands:
            nodes.append(nodes[i] + nodes[j])
            nodes[-1].retain_grad()
        nodes[-1].backward()
        assert graph.gradients() == [0 if node.grad is None else node.grad.item() for node in nodes]
        own = graph.build(closures.Value)
        own[-1].backward()
        assert [node.grad for node in own] == graph.gradients()
        assert [node.data for node in own] == [node.item() for node in nodes]


def test_a_graph_is_the_same_everywhere():
    """Fingerprints of wrong answers depend on it: they are made on one computer and compared on another."""
    assert str(random_sums(6, 6)) == "c = a + b; d = a + c; e = d + d; f = b + d; g = c + e; h = b + f"
    random.seed(1)
    assert random_sums(10, 10) == random_sums(10, 10)


def test_neither_data_nor_its_size_orders_the_nodes():
    """In some of the graphs a sum is smaller than an operand that it passes a gradient on to."""
    for size in (lambda node: node.data, lambda node: -node.data, lambda node: abs(node.data)):
        found = 0
        for count in (6, 10, 14, 24, 32):
            graph = random_sums(count, count)
            nodes = graph.build(closures.Value)
            sums = enumerate(graph.operands, len(LEAVES))
            found += any(size(nodes[k]) < size(nodes[max(pair)]) for k, pair in sums if max(pair) >= len(LEAVES))
        assert found > 1


def test_operands_keep_their_order_in_a_class_with_sets():
    graph = Sums((1.0, 2.0), ((0, 1), (1, 0), (2, 3), (3, 2)))
    nodes = graph.build(closures.Value)
    assert [[nodes.index(child) for child in node._prev] for node in nodes[2:]] == [[0, 1], [1, 0], [2, 3], [3, 2]]
    assert nodes[2]._prev == {nodes[0], nodes[1]}
    assert nodes[2]._prev.copy() == nodes[2]._prev | set() == nodes[2]._prev
    assert sorted(node.label for node in nodes[2]._prev.copy()) == ["a", "b"]


def test_titles_can_be_read():
    assert Sums((3.0,), ((0, 0), (0, 1))).title == "b = a + a; c = a + b"
    assert random_sums(0, 30).title == "30 sums of earlier nodes, at random"
    names = list(random_sums(0, 60).names())
    assert len(set(names)) == len(names)


def test_whoever_visits_each_node_once_is_not_stopped():
    leaf = closures.Value(0.5)
    assert walked(diamonds(leaf).backward) == (None, None)
    assert leaf.grad == 2**26


EVERY_PATH = {
    "trace": """def trace(root):
    nodes, edges = set(), set()
    def visit(node):
        nodes.add(node)
        for child in node._prev:
            edges.add((child, node))
            visit(child)
    visit(root)
    return nodes, edges""",
    "backward": """def backward(self):
    order = []
    def visit(node):
        for child in node._prev:
            visit(child)
        if node not in order:
            order.append(node)
    visit(self)
    self.grad = 1.0
    for node in reversed(order):
        node._backward()""",
}


@pytest.mark.parametrize("name", EVERY_PATH)
def test_whoever_follows_every_path_is_told_so(name):
    with time_limit(2):
        report = grade(EXERCISES[name], EVERY_PATH[name])
    assert (report.passed, report.message, report.error) == (False, AGAIN, None)
    assert all(row.right for row in report.rows)
