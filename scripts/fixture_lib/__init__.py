"""What the fixture makers share. Nothing here runs when Kiln is built, tested or used."""
