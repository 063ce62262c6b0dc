"""Text in, frozen types out, and ``UsageError`` for the rest: outputs of tools, and files of users."""
