"""The lab, in four rooms: ``boot`` boots a kernel, ``kernels`` builds some, ``apart`` boots several that are
connected, and ``persistent`` keeps one up between commands."""
