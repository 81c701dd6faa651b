"""What kvtui drives: the operator's llama-server and the embedded engine, behind one small protocol."""
