"""The storage behind a target, and how it becomes a disk of the initiator."""
