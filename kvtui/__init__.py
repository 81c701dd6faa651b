"""kvtui: make long context really fit, with proof from the engine's own log."""

__version__ = "0.1.0"
