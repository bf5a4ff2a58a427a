"""Who may do what: identities, their tokens, and the one decision about every request."""
