"""No compiler."""
