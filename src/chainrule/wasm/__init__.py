"""WebAssembly: compiled programs that run in a browser."""
