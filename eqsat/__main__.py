"""`python -m eqsat` is `eqsat`."""

from eqsat.cli import main

if __name__ == "__main__":
    main()
