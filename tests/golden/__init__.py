"""Data that must not change while classes and modules move, and tests on it."""
