"""Where a run is carried out: the lab, this machine, or others; and what each needs for it."""
