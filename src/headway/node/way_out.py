"""The way out: what a job does whose agent cannot reach the network from its node.

Another node may do, so the first time the attempt ends, and the job counts. The second time the
agent has the job's next attempts bring the inputs by HTCondor's plugin, which runs outside the
job's container and firewall: the submit description holds the lists for it, and the agent points
HTCondor at them. A plugin is cut off after an hour, so that one bad node is no reason for it.
"""

from __future__ import annotations

import os

from headway.node.ads import read_job_ad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headway.node.plan import Input

INPUT = "HeadwayPluginInput"  # in the job's ad: TransferInput with the agent's inputs in it
PLUGINS = "HeadwayPluginPlugins"  # and TransferPlugins for them
_STANDS_FOR = {PLUGINS: "TransferPlugins", INPUT: "TransferInput"}
_COUNT = "HeadwayNoWayOut"
_DONE = "HeadwayByPlugin"
_ENOUGH = 2


class WayOut:
    """What the job's ad says of it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        ad = read_job_ad(environment)
        count = ad.get(_COUNT.lower())
        self._count = count if isinstance(count, int) else 0
        self._offered = [name for name in (PLUGINS, INPUT) if isinstance(ad.get(name.lower()), str)]
        self.by_plugin = ad.get(_DONE.lower()) is True

    def take_brought(self, inputs: list[Input]) -> None:
        """Let the agent find, rather than fetch, what the plugin has brought in its stead."""
        for each in inputs if self.by_plugin else ():
            if os.path.exists(each.arrives_as) or os.path.exists(each.path):
                each.urls = []

    def none(self, set_attribute: Callable[[str, str], bool]) -> str:
        """There is no way out of this node; does what can be done, and says what that is."""
        line = '`via = "plugin"` in [[inputs]] has HTCondor bring it'
        if INPUT not in self._offered or self.by_plugin:
            return f"another node may do; {line}"
        count = self._count + 1
        said = set_attribute(_COUNT, str(count))
        if not said or count < _ENOUGH:
            return f"another node may do; {line}"
        # the mark last: without it the agent does not look for what the plugin brings
        wanted = {_STANDS_FOR[name]: name for name in self._offered}
        wanted[_DONE] = "true"
        if all(set_attribute(name, value) for name, value in wanted.items()):
            return "from now on HTCondor's plugin brings the inputs of this job"
        return f"another node may do; {line}"
