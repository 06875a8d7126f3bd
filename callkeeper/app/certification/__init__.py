"""The certificate of the first day with a service: what one test call showed of each promise.

``evidence`` reads what callkeeper has kept, ``verdicts`` judges it, ``report`` writes it down. Nothing is sent anywhere.
"""
