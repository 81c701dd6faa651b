"""What the hardware says: GPU memory through NVML, host memory of the engine's process, and the sampler."""
