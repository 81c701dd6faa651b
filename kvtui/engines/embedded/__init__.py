"""The embedded engine: llama.cpp from a wheel, in a process of its own, behind llama-server's option names."""
