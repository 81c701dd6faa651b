"""What kvtui knows: the five steps, their gates, requested against actual, the variables and the advisor."""
