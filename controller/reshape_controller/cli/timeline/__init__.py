"""``reshape timeline``: jobs on GPUs over time, as text, chart and trace."""
