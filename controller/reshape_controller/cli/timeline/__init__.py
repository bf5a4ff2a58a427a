"""``reshape timeline``: what ran where and when, as text, chart and trace."""
