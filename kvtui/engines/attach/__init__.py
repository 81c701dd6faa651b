"""Engines that somebody else runs: found, read, never signalled, reconfigured or given work."""
