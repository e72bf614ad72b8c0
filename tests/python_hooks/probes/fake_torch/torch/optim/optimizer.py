import functools


def _keep_grad_mode(function):
    @functools.wraps(function)
    def _use_grad(self, *args, **kwargs):
        return function(self, *args, **kwargs)

    return _use_grad


class Optimizer:
    def __init__(self, work):
        self.work = work
        if not getattr(self.__class__.step, "hooked", None):
            self.__class__.step = self.profile_hook_step(self.__class__.step)
            self.__class__.step.hooked = True

    @staticmethod
    def profile_hook_step(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    def step(self, closure=None):
        raise NotImplementedError
