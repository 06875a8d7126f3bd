"""Check times: the plan of a call (``plan``), its reads (``reads``), and how the times are found.

``model`` has distributions and the cost of a schedule, ``optimum`` the best schedule, ``estimate`` and ``fit`` fit one
to settled calls. These are pure arithmetic for the command line and the benchmarks. Workers only use
``plan`` and ``reads``, with the times in the rules file.
"""
