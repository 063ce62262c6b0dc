"""Where a run takes place: the lab, this machine, or others; and what each needs."""
