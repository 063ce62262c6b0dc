"""iSCSI."""
