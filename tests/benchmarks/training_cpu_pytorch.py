"""One PyTorch training process for //tests/benchmarks:training_cpu.

    training_cpu_pytorch.py NETWORK.textproto NETWORK_PY_FOLDER fp32|bf16 default|tuned|tuned_nchw BATCH THREADS

Prints "ready VERSION"; then for each line on stdin makes one training step (SGD with momentum and
weight decay, cross entropy) and prints its seconds. `tuned` is channels_last and SGD in multi-tensor
form; the caller adds huge pages and malloc thresholds through the environment.
"""

import sys
import time


def main():
    network_file, folder, precision, mode, batch, threads = sys.argv[1:7]
    sys.path.insert(0, folder)
    try:
        import torch
        from network import TrainableNetwork, load_network
    except ImportError as error:
        print("missing", error, flush=True)
        return
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    description = load_network(network_file)
    size, classes, _ = description
    network = TrainableNetwork(description)
    network.train()
    images = torch.randn([int(batch)] + size)
    labels = torch.randint(0, classes, [int(batch)])
    if mode == "tuned":
        network = network.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.001, momentum=0.9, weight_decay=5e-4,
                                foreach=mode != "default")
    print("ready", torch.__version__, flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        if precision == "bf16":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = network(images, labels)
        else:
            loss = network(images, labels)
        loss.backward()
        optimizer.step()
        loss.item()
        print("%.6f" % (time.perf_counter() - begin), flush=True)


if __name__ == "__main__":
    main()
