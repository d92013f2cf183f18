"""Races the built packages against their peers. `python -m benches.race run` measures, `report` writes it down."""
