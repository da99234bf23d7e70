"""The engines that are built, by name."""

import chainrule
from chainrule import engine

ENGINES = {"python": engine.Value}
if chainrule.ENGINE == "native":
    ENGINES["native"] = chainrule.Value
