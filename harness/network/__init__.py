"""The links between initiator and target, of every kind, with and without hops."""
