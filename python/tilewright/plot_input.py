"""What is wrong with a file that is to be drawn."""


class BadInput(Exception):
    """One line that names what is wrong; exit status 2."""
