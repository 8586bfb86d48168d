"""Program → program as a caller asked: layouts, weights, devices and sizes at its border."""
