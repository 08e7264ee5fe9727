"""The command `gnomon`: one module for each command, imported when it is called."""
