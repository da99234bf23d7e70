"""What runs an array program: LLVM, XLA, the interpreter, and node by node; and what writes it as C."""
