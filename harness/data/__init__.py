"""From files to arrays to batches, and the data sets that ship with the engine."""
