"""``reshape db``: maintenance of the store."""
