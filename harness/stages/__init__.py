"""The steps that a cell is made of: train, rank, and the training of stand-alone networks."""
