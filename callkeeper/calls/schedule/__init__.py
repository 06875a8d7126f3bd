"""When checks are made (``plan``), and when stored details are read between them (``reads``)."""
