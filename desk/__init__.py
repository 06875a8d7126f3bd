"""What people and their software look at: the RQ dashboard behind a login."""
