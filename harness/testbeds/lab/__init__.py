"""The lab, in four packages: ``boot`` boots a kernel, ``kernels`` builds some, ``apart`` boots several that are
connected, and ``persistent`` keeps one up between commands."""
