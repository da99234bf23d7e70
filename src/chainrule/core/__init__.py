"""What every room stands on: which engine runs, who is told of nodes, graph walks, structures, checks of arguments."""
