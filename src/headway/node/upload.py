"""The upload: outputs with a URL of their own are sent there by the agent."""

from __future__ import annotations

from urllib.parse import quote

from headway.node.outputs import Found, tree_files
from headway.node.transfer import put, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.node.progress import Progress


def send(
    found: list[Found], progress: Progress, should_stop: Callable[[], bool]
) -> list[dict[str, object]]:
    """Send each output to its URL, a folder file by file; returns what the record says."""
    told = []
    for each in found:
        url = each.output.url or ""
        progress.begin(each.output.path)
        for path, name in tree_files(each.place):
            sent = put(
                path,
                below(url, name),
                overwrite=each.output.overwrite,
                progress=progress.moved,
                should_stop=should_stop,
            )
            progress.finished(sent.bytes)
        told.append(each.told(shown(url)))
    return told


def below(url: str, name: str) -> str:
    """The URL of a file of a folder; the query, which may be a signature, stays at the end."""
    if not name:
        return url
    place, mark, query = url.partition("?")
    return f"{place.rstrip('/')}/{quote(name)}{mark}{query}"
