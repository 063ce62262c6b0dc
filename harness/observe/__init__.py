"""What is looked at while something is measured, and what the hosts are that it is measured on."""
