"""An OpenFlow switch and its controller."""
