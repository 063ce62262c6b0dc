"""From what a user types to a plan: nothing is measured here, and nothing brought up."""
