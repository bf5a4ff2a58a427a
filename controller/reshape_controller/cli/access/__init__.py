"""Commands about identities: tokens of a daemon, and logins at daemons elsewhere."""
