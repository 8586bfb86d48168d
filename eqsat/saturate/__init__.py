"""Program × RuleSet × Target → EGraph; the only home of egglog."""

from eqsat.model.limits import Limits
from eqsat.saturate.run import saturate

__all__ = ["Limits", "saturate"]
