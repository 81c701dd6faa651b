"""llama-server, the operator's own: its command line, its abilities, its answers."""
