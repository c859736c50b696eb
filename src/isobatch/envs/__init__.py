"""Environments: one interface, and the backends behind it."""
