"""Images per second of torchvision's ImageFolder behind PyTorch's DataLoader.

Run by :input_pipeline. Prints "images_per_second N".
"""
import argparse
import sys
import time

try:
    import PIL  # noqa: F401
    import torch
    from torchvision import datasets, transforms
except ImportError as error:
    sys.exit("%s" % error)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--images", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data_set = datasets.ImageFolder(
        arguments.folder,
        transforms.Compose([
            transforms.Resize(256),
            transforms.RandomCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]))
    # One long epoch: the start of an epoch waits for the workers' first batches.
    wanted = arguments.images + arguments.warmup * arguments.batch
    copies = -(-wanted // len(data_set))
    loader = torch.utils.data.DataLoader(
        torch.utils.data.ConcatDataset([data_set] * copies),
        batch_size=arguments.batch, shuffle=True, drop_last=True,
        num_workers=arguments.workers)
    start = None
    images = 0
    for i, (pixels, _) in enumerate(loader):
        if start is not None:
            images += pixels.shape[0]
        if i == arguments.warmup - 1:
            start = time.perf_counter()
        if images >= arguments.images:
            break
    print("images_per_second %f" % (images / (time.perf_counter() - start)))


if __name__ == "__main__":
    main()
