"""A fuzzer: what the harness reads and what is typed to it, damaged at random, the same for the same seed.

``mutate`` is the damage, ``driver`` tries it and reduces what fails, and each *door* is one way in:
``parsers``, ``jobs``, ``folders`` (of results), ``sections`` (folders of questions), ``planted`` (what is no
regular file), ``zips`` (shared runs of others), ``shares`` (what is shared of a run with secrets),
``written`` (CPU cost files, figures of others, settings) and ``words`` (of a command line). ``commands`` runs
a command as a user does, and sees what it opens and starts.
"""
