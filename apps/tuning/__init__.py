"""The command ``onesided tune``."""
