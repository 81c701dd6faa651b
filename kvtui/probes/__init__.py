"""What kvtui asks of a running engine: speed at depth, recall, tasks, divergence, concurrency."""
