"""What is behind a target, and how it becomes a disk of the initiator's."""
