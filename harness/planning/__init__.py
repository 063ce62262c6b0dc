"""Turns what a user types into a plan. Nothing is measured or set up here."""
