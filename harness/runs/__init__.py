"""Carries out a plan: the composers, and the code that makes and judges one measurement."""
