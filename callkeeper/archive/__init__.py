"""Settled calls for years, in SQL: append-only lines, a hash chain per institution, personal data in a separate table.

Only this package imports SQLAlchemy. Other packages import this one only if an archive is configured.
"""
