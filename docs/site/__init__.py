"""The documentation site: pages are gathered from the repository, reference pages are written from the code."""
