"""Program × RuleSet × Target → EGraph; the only home of egglog."""

from eqsat.saturate.run import Limits, saturate

__all__ = ["Limits", "saturate"]
