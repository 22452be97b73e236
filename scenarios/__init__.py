"""The shipped scenarios: TOML files, found by name through the entry-point group of scenarios."""
