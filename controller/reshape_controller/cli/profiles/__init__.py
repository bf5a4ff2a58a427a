"""``reshape profile``: what is known of job types, and what starts and stops cost here."""
