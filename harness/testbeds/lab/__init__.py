"""The lab, in four packages: ``boot`` boots a kernel, ``kernels`` builds some, ``per_host`` boots one for
each host, and ``persistent`` keeps one up between commands."""
