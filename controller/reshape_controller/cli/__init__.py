"""The command ``reshape``; the only place that wires concrete classes."""
