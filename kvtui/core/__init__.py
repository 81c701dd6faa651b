"""The vocabulary that every other folder shares: errors, units, text, what is asked of a run, findings."""
