def moons(count, noise=0.1):
    """Two half circles that reach into each other: points, and the class of each, 1 or -1."""
    points, classes = [], []
    for i in range(count):
        angle = math.pi * random.random()
        upper = i % 2 == 0
        x, y = (math.cos(angle), math.sin(angle)) if upper else (1 - math.cos(angle), 0.5 - math.sin(angle))
        points.append([x + random.gauss(0, noise), y + random.gauss(0, noise)])
        classes.append(1 if upper else -1)
    return points, classes


def main():
    random.seed(1)
    points, classes = moons(50)
    model = MLP(2, [8, 8, 1])
    print(f"{len(model.parameters())} parameters, {len(points)} points")
    for step in range(0, 100, 10):
        losses = train(model, points, classes, 10, 0.01)
        right = sum((model(x).data > 0) == (y > 0) for x, y in zip(points, classes))
        print(f"step {step:3}  loss {losses[0]:8.4f}  {right} of {len(points)} right after ten more")


if __name__ == "__main__":
    main()
