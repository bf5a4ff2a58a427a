"""The daemon's HTTP interface: parse, hand on, render. No decisions, no state of its own."""
