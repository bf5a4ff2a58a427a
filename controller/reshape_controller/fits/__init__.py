"""Numerical fits, outside the engine: points in, events with rounded coefficients out."""
