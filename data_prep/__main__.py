"""`python -m data_prep`: the same as the installed command `data-prep`."""

from data_prep.cli import main

if __name__ == "__main__":
    main()
