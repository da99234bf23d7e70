"""The part of Python that `chainrule.wasm.elementary` may use, since a compiler must turn it into WebAssembly.

`violations(module)` names what is outside, with its line: an empty list for a module that compiles.
"""

import ast
import importlib
import inspect
from graphlib import CycleError, TopologicalSorter

PRIMITIVES = {"sqrt": 1, "floor": 1, "trunc": 1, "nearest": 1, "absolute": 1, "copysign": 2, "exponent": 1}
PRIMITIVES |= {"power_of_2": 1, "horner": 2}
NUMBER, PAIR = "float", "tuple[float, float]"
FOLDER = "chainrule.wasm"


class Checker:
    """Walks one module, and collects what it must not contain."""

    def __init__(self, source):
        self.found = []
        self.functions = {}  # name: (number of parameters, kind of result)
        self.tables, self.constants, self.calls = set(), set(), {}
        self.tree = ast.parse(source)

    def refuse(self, node, what):
        self.found.append(f"line {getattr(node, 'lineno', 0)}: {what}: {ast.unparse(node)[:60]}")

    def adopt(self, other):
        self.functions |= other.functions
        self.tables |= other.tables
        self.constants |= other.constants

    def check(self):
        body = self.tree.body[1:] if ast.get_docstring(self.tree) else self.tree.body
        definitions = [node for node in body if isinstance(node, ast.FunctionDef)]
        for node in definitions:
            self.functions[node.name] = (len(node.args.args), ast.unparse(node.returns) if node.returns else "")
        for node in body:
            if isinstance(node, ast.Assign):
                self.module_constant(node)
            elif isinstance(node, ast.ImportFrom):
                if not (node.module or "").startswith(FOLDER):
                    self.refuse(node, "import")
            elif not isinstance(node, ast.FunctionDef):
                self.refuse(node, "statement of a module")
        for node in definitions:
            self.function(node)
        try:
            TopologicalSorter(self.calls).prepare()
        except CycleError as cycle:
            self.found.append(f"recursion: {cycle.args[1]}")
        return self.found

    def module_constant(self, node):
        name = node.targets[0].id if isinstance(node.targets[0], ast.Name) and len(node.targets) == 1 else None
        if name is None or name != name.upper():
            self.refuse(node, "constant without a name of its own")
        elif isinstance(node.value, ast.Tuple):
            self.tables.add(name)
            for element in node.value.elts:
                self.constant_expression(element)
        else:
            self.constants.add(name)
            self.constant_expression(node.value)

    def constant_expression(self, node):
        for part in ast.walk(node):
            known = isinstance(part, ast.Name) and part.id in self.constants
            literal = isinstance(part, ast.Constant) and type(part.value) is float
            arithmetic = isinstance(part, (ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context))
            allowed = not isinstance(part, (ast.Pow, ast.Mod, ast.FloorDiv, ast.Not, ast.Invert))
            if not (known or literal or (arithmetic and allowed)):
                self.refuse(part, "in a constant")

    def function(self, node):
        given, kind = node.args, self.functions[node.name][1]
        plain = not (given.defaults or given.kwonlyargs or given.vararg or given.kwarg or given.posonlyargs)
        floats = all(a.annotation is not None and ast.unparse(a.annotation) == NUMBER for a in given.args)
        if not (plain and floats and kind in (NUMBER, PAIR)) or node.decorator_list:
            self.refuse(node, "signature")
        self.result, self.known, self.name = kind, {a.arg for a in given.args}, node.name
        self.calls[node.name] = set()
        body = node.body[1:] if ast.get_docstring(node) else node.body
        self.block(body)

    def block(self, statements):
        for node in statements:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self.assignment(node)
            elif isinstance(node, ast.If):
                self.condition(node.test)
                self.block(node.body)
                self.block(node.orelse)
            elif isinstance(node, ast.While) and not node.orelse:
                self.condition(node.test)
                self.block(node.body)
            elif isinstance(node, ast.Return) and node.value is not None:
                self.value(node.value, self.result)
            else:
                self.refuse(node, "statement")

    def assignment(self, node):
        target = node.targets[0]
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if not all(isinstance(name, ast.Name) for name in names) or len(names) not in (1, 2):
            self.refuse(node, "target")
            return
        self.value(node.value, PAIR if isinstance(target, ast.Tuple) else NUMBER)
        self.known |= {name.id for name in names}

    def value(self, node, kind):
        if kind == PAIR:
            self.pair(node)
        else:
            self.number(node)

    def pair(self, node):
        if isinstance(node, ast.Tuple) and len(node.elts) == 2:
            for element in node.elts:
                self.number(element)
        elif isinstance(node, ast.Call):
            self.call(node, PAIR)
        else:
            self.refuse(node, "not a pair")

    def condition(self, node):
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self.condition(value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.condition(node.operand)
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            if not isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)):
                self.refuse(node, "comparison")
            self.number(node.left)
            self.number(node.comparators[0])
        else:
            self.refuse(node, "condition")

    def number(self, node):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
            self.number(node.left)
            self.number(node.right)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            self.number(node.operand)
        elif isinstance(node, ast.IfExp):
            self.condition(node.test)
            self.number(node.body)
            self.number(node.orelse)
        elif isinstance(node, ast.Name):
            if node.id not in self.known | self.constants:
                self.refuse(node, "unknown name")
        elif isinstance(node, ast.Call):
            self.call(node, NUMBER)
        elif isinstance(node, ast.Subscript):
            self.entry(node)
        elif not (isinstance(node, ast.Constant) and type(node.value) is float):
            self.refuse(node, "expression")

    def entry(self, node):
        """TABLE[int(number)]."""
        index = node.slice
        whole = isinstance(index, ast.Call) and isinstance(index.func, ast.Name) and index.func.id == "int"
        if not (isinstance(node.value, ast.Name) and node.value.id in self.tables and whole and len(index.args) == 1):
            self.refuse(node, "index")
            return
        self.number(index.args[0])

    def call(self, node, kind):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        arity, result = (PRIMITIVES[name], NUMBER) if name in PRIMITIVES else self.functions.get(name, (-1, ""))
        if node.keywords or len(node.args) != arity or result != kind:
            self.refuse(node, "call")
            return
        self.calls[self.name].add(name)
        numbers = node.args
        if name == "horner":
            numbers, table = node.args[:1], node.args[1]
            if not (isinstance(table, ast.Name) and table.id in self.tables):
                self.refuse(node, "coefficients")
        for argument in numbers:
            self.number(argument)


def checked(module):
    """The checker of a module, or of a text, with the names that it imports."""
    source = module if isinstance(module, str) else inspect.getsource(module)
    checker = Checker(source)
    for node in ast.walk(checker.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{FOLDER}.elementary"):
            checker.adopt(checked(importlib.import_module(node.module)))
    checker.check()
    return checker


def violations(module):
    """What a module, or a text, contains beside the subset."""
    return checked(module).found
