"""The daemon's HTTP interface: parses requests, calls ``live`` and the store, renders answers."""
