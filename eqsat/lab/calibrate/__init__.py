"""Calibration: the rates of one core here, by kernels or by XLA, as a target file."""

from eqsat.lab.calibrate.host import Calibration, calibrate
from eqsat.lab.calibrate.kernels import KernelCalibration, base_target, calibrate_kernels

__all__ = ["Calibration", "KernelCalibration", "base_target", "calibrate", "calibrate_kernels"]
