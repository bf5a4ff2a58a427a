"""``reshape profile``: profiles of job types, and the costs of starts and stops here."""
