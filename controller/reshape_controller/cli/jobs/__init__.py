"""Commands about jobs, GPUs and decisions of a running daemon."""
