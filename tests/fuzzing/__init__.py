"""Harmed inputs for every reader of what others wrote;
`unit/test_fuzz.py` and `scripts/fuzz.py` share them."""
