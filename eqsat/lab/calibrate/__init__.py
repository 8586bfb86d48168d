"""What this machine does with one core and XLA, as a target file."""

from eqsat.lab.calibrate.host import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
