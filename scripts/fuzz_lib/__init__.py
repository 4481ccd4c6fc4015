"""What the differential fuzzer is made of. Nothing here runs when Kiln is built, tested or used."""
