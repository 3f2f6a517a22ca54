"""pytorch/examples' mnist/main.py with five lines for checkpoints, on a tiny data set of its own.

The net is narrower and the pictures are made up; all else is as it is there: what it prints is
printed without a flush, and SIGTERM is heeded at the end of an epoch.
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR

from headway.checkpoint import Checkpoint  # 1


class MNIST(torch.utils.data.Dataset):
    """As torchvision.datasets.MNIST: pictures of 28 x 28 and their digits, by number."""

    def __init__(self, train):
        drawn = torch.Generator().manual_seed(int(train))
        self.targets = torch.randint(0, 10, (512 if train else 128,), generator=drawn)
        self.data = 0.3 * torch.randn(len(self.targets), 1, 28, 28, generator=drawn)
        for row, digit in enumerate(self.targets):
            self.data[row, 0, 2 * digit : 2 * digit + 4] += 1.0

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.data[index], int(self.targets[index])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.conv2 = nn.Conv2d(4, 8, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(1152, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = torch.flatten(self.dropout1(x), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            done, of = batch_idx * len(data), len(train_loader.dataset)
            share = 100.0 * batch_idx / len(train_loader)
            print(f"Train Epoch: {epoch} [{done}/{of} ({share:.0f}%)]\tLoss: {loss.item():.6f}")


def test(model, device, test_loader):
    model.eval()
    test_loss = 0
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()

    of = len(test_loader.dataset)
    average, share = test_loss / of, 100.0 * correct / of
    print(f"\nTest set: Average loss: {average:.4f}, Accuracy: {correct}/{of} ({share:.0f}%)\n")


def main():
    parser = argparse.ArgumentParser(description="PyTorch MNIST Example")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--test-batch-size", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--save-model", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    device = torch.device("cpu")

    train_loader = torch.utils.data.DataLoader(
        MNIST(train=True), batch_size=args.batch_size, shuffle=True
    )
    test_loader = torch.utils.data.DataLoader(MNIST(train=False), batch_size=args.test_batch_size)

    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    things = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    checkpoint = Checkpoint("ckpt")  # 2
    kept = checkpoint.load(**things)  # 3
    for epoch in range(kept["epoch"] + 1 if kept else 1, args.epochs + 1):  # 4
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()
        checkpoint.tick(epoch=epoch, **things)  # 5

    if args.save_model:
        torch.save(model.state_dict(), "mnist_cnn.pt")


if __name__ == "__main__":
    main()
