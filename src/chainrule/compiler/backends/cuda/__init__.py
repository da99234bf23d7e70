"""The CUDA backend: array programs as PTX, for NVIDIA's GPUs, by their driver alone."""
