"""Running programs: memory, threads, batches, training steps and many devices."""
