"""The commands ``callkeeper run`` and ``callkeeper sandbox``."""
