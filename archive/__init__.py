"""Settled calls for years, in SQL: append-only lines, a hash chain per institution, personal data in a table of its own.

SQLAlchemy is imported here and nowhere else. Nothing above imports this package while it starts: only who has a database
pays for it.
"""
