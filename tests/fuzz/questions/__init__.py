"""What questions add: doors of their own, and commands of others."""
