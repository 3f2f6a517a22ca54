"""Data for PyTorch, with exact resume; out of a tar file, too, that is whole or still arriving.

    from headway.torch import Loader, TarDataset

    data = TarDataset("train.tar", decode=decode, transform=transform, only="*.jpeg")
    loader = Loader(data, batch_size=256, seed=1, workers=4)
    checkpoint.load(model=model, optimizer=optimizer, loader=loader)
    while loader.epoch < epochs:
        for images, labels in loader:
            ...
            checkpoint.tick(model=model, optimizer=optimizer, loader=loader)

Any data set with `__len__` and `__getitem__` will do in place of the TarDataset: MNIST, one of
Hugging Face, ImageFolder. A loader gives every sample of an epoch once, to all ranks together; the
order and all random choices of `transform` follow from the seed alone, whatever the number of
workers, and go on after `load_state_dict` with the very next sample.
"""

from headway.node.errors import NodeError, TransferError
from headway.node.stream.samples import DataError, SampleError
from headway.torch.dataset import Shuffled, TarDataset, TarStream
from headway.torch.loader import Loader

__all__ = [
    "DataError",
    "Loader",
    "NodeError",
    "SampleError",
    "Shuffled",
    "TarDataset",
    "TarStream",
    "TransferError",
]
