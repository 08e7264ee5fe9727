"""What lies in deploy/: linted, held to schemas, and compared with the code that it names."""
