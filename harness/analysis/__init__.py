"""Pure functions on figures: statistics over repeats, closed forms, and figures that are impossible."""
