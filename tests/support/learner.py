"""A learner who has written everything, in a style of their own: other names, other loops, numbers in other places."""

from textwrap import dedent

from chainrule.learn.lesson_files import load_course

COURSE = load_course()
SOLUTIONS = {name: exercise.solution for name, exercise in COURSE.exercises.items()}
OWN = {
    name: dedent(code).strip()
    for name, code in {
        "init": """
        def __init__(self, data, _children=(), _op="", label=""):
            self.data, self.grad = data, 0.0
            self._prev, self._op, self.label = set(_children), _op, label
            def nothing():
                pass
            self._backward = nothing
    """,
        "add": """
        def _backward():
            for operand in (self, other):
                operand.grad += out.grad
    """,
        "mul": """
        def _backward():
            a, b = self.data, other.data
            self.grad = self.grad + b * out.grad
            other.grad = other.grad + a * out.grad
    """,
        "power": """
        def _backward():
            slope = exponent * self.data ** (exponent - 1)
            self.grad += out.grad * slope
    """,
        "tanh": """
        def _backward():
            self.grad += out.grad - out.grad * out.data * out.data
    """,
        "exp": """
        def _backward():
            self.grad += out.grad * math.exp(self.data)
    """,
        "relu": """
        def _backward():
            if self.data > 0:
                self.grad += out.grad
    """,
        "backward": """
        def backward(self):
            order, seen, stack = [], set(), [(self, False)]
            while stack:
                node, done = stack.pop()
                if done:
                    order.append(node)
                elif node not in seen:
                    seen.add(node)
                    stack.append((node, True))
                    stack.extend((below, False) for below in node._prev)
            self.grad = 1.0
            while order:
                order.pop()._backward()
    """,
        "neuron": """
        class Neuron:
            def __init__(self, nin):
                self.w = [Value(random.uniform(-1, 1)) for _ in range(nin)]
                self.b = Value(0.0)

            def __call__(self, x):
                products = [wi * xi for wi, xi in zip(self.w, x)]
                return squash(sum(products) + self.b)

            def parameters(self):
                return [*self.w, self.b]

        def squash(number):
            return Value.tanh(number)
    """,
        "layer": """
        class Layer:
            def __init__(self, nin, nout):
                self.neurons = []
                for _ in range(nout):
                    self.neurons.append(Neuron(nin))

            def __call__(self, x):
                return list(map(lambda neuron: neuron(x), self.neurons))

            def parameters(self):
                return sum((neuron.parameters() for neuron in self.neurons), [])
    """,
        "mlp": """
        class MLP:
            def __init__(self, nin, nouts):
                self.layers = []
                for nout in nouts:
                    self.layers.append(Layer(nin, nout))
                    nin = nout

            def __call__(self, x):
                answers = x
                for layer in self.layers:
                    answers = layer(answers)
                if len(answers) == 1:
                    return answers[0]
                return answers

            def parameters(self):
                found = []
                for layer in self.layers:
                    found += layer.parameters()
                return found
    """,
        "loss": """
        def loss_of(model, xs, ys):
            total = 0
            for x, y in zip(xs, ys):
                total += (model(x) - y) ** 2
            return total
    """,
        "train": """
        def train(model, xs, ys, steps, rate):
            history = []
            while len(history) < steps:
                loss = loss_of(model, xs, ys)
                loss.backward()
                for p in model.parameters():
                    p.data = p.data - rate * p.grad
                    p.grad = 0.0
                history.append(loss.data)
            return history
    """,
    }.items()
}
OWN_GPT = {
    name: dedent(code).strip()
    for name, code in {
        "embed": """
        def embed(table, token):
            columns = zip(*table)
            return [sum(t * x for t, x in zip(token, column)) for column in columns]
    """,
        "softmax": """
        def softmax(scores):
            top = max([score.data for score in scores])
            powers = []
            for score in scores:
                powers.append((score + -top).exp())
            whole = powers[0]
            for each in powers[1:]:
                whole = whole + each
            return [each * whole ** -1 for each in powers]
    """,
        "attention": """
        def attention(query, keys, values):
            scores = [sum(a * b for a, b in zip(query, key)) * len(query) ** -0.5 for key in keys]
            shares = softmax(scores)
            return shares, embed(values, shares)
    """,
        "surprise": """
        def surprise(scores, target):
            total = 0.0
            for p, t in zip(softmax(scores), target):
                total = total - p.log() * t
            return total
    """,
    }.items()
}
PROGRAM = {"template": COURSE.templates["Training"], "own": OWN, "lent": SOLUTIONS, "engine": "own"}
