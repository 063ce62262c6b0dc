"""A PPPoE client and its access concentrator."""
