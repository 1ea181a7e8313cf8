"""The model of the exchanges as commands: its parameters measured, its predictions shown."""
