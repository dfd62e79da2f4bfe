"""Everything that a person or a program reads; nothing below this package prints."""
