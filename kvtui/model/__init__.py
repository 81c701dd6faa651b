"""What a model file says: header, attention geometry, cache types, footprint, budget. Pure, standard library only."""
