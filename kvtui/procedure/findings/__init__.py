"""What a run shows to be wrong beside its log: its readings, its probes, the fault that ended it."""
