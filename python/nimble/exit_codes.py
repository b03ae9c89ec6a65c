"""What the command line's exit status means."""

FINE = 0
BROKEN = 1  # a result differs from eager's, a schedule is wrong, an installation does not work
WRONG_INPUT = 2  # the command line, a file or a name; a package that is not installed
REFUSED = 3  # the model cannot be replayed; the message says what to change
MODEL_FAILED = 4  # the model's own code raised an error; the message says where
INTERRUPTED = 130
UNREAD = 141  # whoever read standard output went away, as `head` does


class WrongInput(ValueError):
    """Ends a command with WRONG_INPUT; the text says what is wrong and what would be right."""
