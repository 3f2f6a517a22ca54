"""Write the manifest of a file, in a job: there, Headway is its node half, without commands."""

import sys

from headway.node.transfer.manifest import publish

print(publish(sys.argv[1]).digest)
