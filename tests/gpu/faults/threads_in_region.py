"""A second thread allocates and launches all the time while modules are called in the first (row 10)."""

import threading

import torch

CALLS = 200


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256)).cuda()
    x = torch.randn(16, 256, device="cuda")
    torch.erfinv(x.clamp(-0.9, 0.9))
    with torch.no_grad():
        model(x)
    torch.cuda.synchronize()
    stop = threading.Event()
    checks = []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
            base = torch.full((4096,), 0.25, device="cuda")
            expected = torch.erfinv(base).cpu()
            while not stop.is_set():
                results = [torch.erfinv(base) for _ in range(8)]
                checks.append(all(torch.equal(result.cpu(), expected) for result in results))

    thread = threading.Thread(target=work)
    thread.start()
    with torch.no_grad():
        for _ in range(CALLS):
            x = model(x) + 0.01
    stop.set()
    thread.join()
    print(f"other thread: ran {len(checks) > 0}, right {all(checks)}")
    print(f"sum {x.double().sum().item()!r}")


if __name__ == "__main__":
    main()
