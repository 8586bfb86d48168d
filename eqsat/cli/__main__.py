"""`python -m eqsat.cli` is `eqsat`."""

from eqsat.cli.app import main_as_module

if __name__ == "__main__":
    main_as_module()
