"""`python -m eqsat.cli` is `eqsat`."""

from eqsat.cli import main

if __name__ == "__main__":
    main()
