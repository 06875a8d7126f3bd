"""The part of PromQL that our alerts and dashboards are written in: enough to hold them to what is exported.

``syntax`` reads an expression, ``history`` keeps scrapes, ``evaluation`` evaluates one over the other. Where promtool is
installed, a test lets it judge the same rules over the same scrapes.
"""
