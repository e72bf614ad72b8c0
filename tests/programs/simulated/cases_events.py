"""CUDA events that reach beyond a call."""
import torch
from bed import case
from tiny import Net, data, net


class WithEvents(Net):
    """As cuDNN forks: by events that are made once, and are waited for by whoever comes next."""

    def forward(self, x):
        current = torch.cuda.current_stream().cuda_stream
        torch._C._cuda_waitEvent(self.joined, self.side)
        torch._C._cuda_recordEvent(self.forked, current)
        torch._C._cuda_waitEvent(self.forked, self.side)
        with torch.cuda.stream(torch.cuda.Stream(self.side)):
            torch.delay(2000)
            z = self.first(x * 2)
        torch._C._cuda_recordEvent(self.joined, self.side)
        torch._C._cuda_waitEvent(self.joined, current)
        torch.delay(2000)
        y = self.second(torch.relu(z))
        torch._C._cuda_recordEvent(self.done, current)
        return y


def with_events(timed=0):
    model = net(WithEvents)
    model.side = torch.cuda.Stream().cuda_stream
    model.forked, model.joined = torch._C._cuda_makeEvent(0), torch._C._cuda_makeEvent(0)
    model.done = torch._C._cuda_makeEvent(timed)
    return model


# Another stream waits for the call by its event, and finds its result.
@case("e{2,3}r{9,10}")
def events_outlive_the_call(run):
    model, other = with_events(), torch.cuda.Stream()
    for i in range(12):
        y = run(model, data(i))
        torch._C._cuda_waitEvent(model.done, other.cuda_stream)
        with torch.cuda.stream(other):
            z = y * 2
            run.see(z)
        torch.cuda.current_stream().wait_stream(other)


@case("e{4,8}p{0,4}", reason="records an event that a time may be taken with")
def an_event_takes_the_time(run):
    model = with_events(timed=1)
    for i in range(8):
        run(model, data(i))


# By the same handle or another one: nothing is recorded on an event that is gone, and a new one is another program.
@case("e{2,3}r{5,6}e{2}r{6}")
def an_event_goes_and_another_comes(run):
    model = with_events()
    for i in range(16):
        if i == 8:
            handle = model.joined
            torch._C._cuda_destroyEvent(handle)
            made = [torch._C._cuda_makeEvent(0) for _ in range(64)]
            object.__setattr__(model, "joined", handle if handle in made else made[0])
        run(model, data(i))
