"""What the hardware says: GPU memory by NVIDIA's or AMD's driver, host memory of the engine, and the sampler."""
