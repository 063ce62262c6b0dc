"""Pure functions on figures: statistics over repeats, what can be expected in closed form, what cannot be."""
