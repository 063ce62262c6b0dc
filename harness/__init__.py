"""What a volume loses on iSCSI, over which link, with IPsec on, and which layer is to blame.

Imports point one way: ``errors``, ``model`` and ``units`` at the bottom, then ``run`` (the one place
that starts programs) and ``hosts``, then the things that are brought up, then ``bench`` (the one
composer), then ``table`` (which needs the model alone), and ``cli`` on top.
"""

__version__ = "0.1.0"
