"""Handwritten digits of 8 × 8 pixels, read by a small network: the loss of one image, compiled, over all images.

Needs scikit-learn, which brings the images: `pip install scikit-learn`.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import chainrule
from chainrule import losses, nn, optim

SHADES = " ░▒▓█"


def images() -> list[np.ndarray]:
    """Pixels from 0 to 1 and labels: the training set's, then the test set's, with a fifth of the images."""
    pixels, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(
        pixels / 16.0, labels, test_size=0.2, stratify=labels, random_state=0
    )
    return [train, train_labels, test, test_labels]


def train(model: nn.MLP, pixels: np.ndarray, labels: np.ndarray, steps: int = 150) -> list[float]:
    """Adam on all images at once; the mean loss before each step."""

    def loss(image: list[Any], label: Any) -> Any:
        return losses.cross_entropy([model(image)], [label])

    compiled = chainrule.compile(loss, wrt=model.parameters())
    optimizer = optim.Adam(model.parameters(), lr=optim.cosine(0.02, 0.0, steps))
    history = []
    for _ in range(steps):
        optimizer.zero_grad()
        history.append(compiled.batch(pixels, labels))
        optimizer.step()
    return history


def read(model: nn.MLP, pixels: np.ndarray) -> np.ndarray:
    """The digit that the model sees in each image."""
    return np.argmax(chainrule.compile(model).batch(pixels, reduce=None), axis=0)


def drawn(image: np.ndarray) -> str:
    """An image as eight lines of text."""
    rows = image.reshape(8, 8)
    return "\n".join("".join(2 * SHADES[int(4.99 * shade)] for shade in row) for row in rows)


def main() -> None:
    pixels, labels, test_pixels, test_labels = images()
    model = nn.MLP(64, [32, 10], init="he", rng=1)
    started = perf_counter()
    history = train(model, pixels, labels)
    seconds = perf_counter() - started
    answers = read(model, test_pixels)
    print(f"{model}: {len(model.parameters()):,} parameters, {len(pixels):,} images")
    print(f"{len(history)} steps in {seconds:.1f} s, compiling included; loss {history[0]:.2f} → {history[-1]:.4f}")
    print(f"right on {np.mean(answers == test_labels):.1%} of the {len(answers)} images of the test set")
    for wrong in np.flatnonzero(answers != test_labels)[:1]:
        print(f"this {test_labels[wrong]} was taken for a {answers[wrong]}:\n{drawn(test_pixels[wrong])}")


if __name__ == "__main__":
    main()
