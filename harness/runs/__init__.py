"""From what was typed to what was measured: plans, and the composers that carry them out."""
