"""`python -m eqsat.cli` is `eqsat`."""

from eqsat.__main__ import begin_as_module

if __name__ == "__main__":
    begin_as_module()
