"""Notifications: what happens to jobs and GPUs, sent to targets that an operator defines."""
