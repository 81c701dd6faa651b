"""What kvtui keeps: an append-only event log, one folder a session; state is a fold over it."""
