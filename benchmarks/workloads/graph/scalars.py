def loss(leaves, *_):
    """Five nodes an inner turn, no deeper than five times the leaves."""
    total = leaves[0]
    for a in leaves:
        x = a
        for b in leaves:
            x = (x * a + b).relu() + x * b
        total = total + x
    return total
