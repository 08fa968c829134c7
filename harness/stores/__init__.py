"""Where runs are kept: one directory a run, in Sacred's layout. The run directory is the truth."""
