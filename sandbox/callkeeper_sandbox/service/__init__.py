"""A stand-in for the voice-verification service, written only from its interface document.

It behaves as the document says over real HTTP, can be scripted to fail (`faults`), records the requests that it
received (`ledger`), and shares no code with the software that is tested against it.
"""
