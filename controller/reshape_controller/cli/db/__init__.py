"""``reshape db``: the store, looked after by hand."""
