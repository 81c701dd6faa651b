"""What kvtui drives: a folder a kind of engine, behind one small protocol (`base`); `attach` reads what others run."""
