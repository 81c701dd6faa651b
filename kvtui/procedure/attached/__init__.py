"""Engines that somebody else started: requested against actual, and what their memory lets infer."""
