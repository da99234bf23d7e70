def loss(leaves, *_):
    total = leaves[0]
    for a in leaves:
        x = a
        for b in leaves:
            y = x * a + b
            x = (y if y > 0.0 else 0.0) + x * b
        total = total + x
    return total
