"""What carries a plan out: the composers, and what makes and judges one measurement."""
