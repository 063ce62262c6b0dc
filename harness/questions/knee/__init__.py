"""The highest load that meets a latency goal."""
