"""Data for PyTorch, with exact resume; also from a tar file that is still arriving.

    from headway.torch import Loader, TarDataset

    data = TarDataset("train.tar", decode=decode, transform=transform, only="*.jpeg")
    loader = Loader(data, batch_size=256, seed=1, workers=4)
    checkpoint.load(model=model, optimizer=optimizer, loader=loader)
    while loader.epoch < epochs:
        for images, labels in loader:
            ...
            checkpoint.tick(model=model, optimizer=optimizer, loader=loader)

Instead of the TarDataset you can use any data set with `__len__` and `__getitem__`: MNIST, one of
Hugging Face, ImageFolder. A loader gives every sample of an epoch once, to all ranks together. The
order and all random choices of `transform` depend only on the seed, not on the number of workers,
and after `load_state_dict` they continue with the very next sample.
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
