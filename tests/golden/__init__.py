"""What must not change while classes and modules are moved: committed data, and tests on it."""
