"""A stand-in for the voice-verification service, written from its interface document alone.

It keeps the document's promises over real HTTP, can be told to break them (`faults`), can be asked what reached it
(`ledger`), and shares no code with the software that is tested against it.
"""
