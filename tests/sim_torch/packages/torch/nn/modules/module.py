from collections import OrderedDict

import torch
from torch.nn.parameter import Parameter

_global_forward_hooks = OrderedDict()
_global_forward_pre_hooks = OrderedDict()
_global_backward_hooks = OrderedDict()
_global_backward_pre_hooks = OrderedDict()


class _Handle:
    def __init__(self, hooks, key):
        self._hooks, self._key = hooks, key

    def remove(self):
        self._hooks.pop(self._key, None)


class Module:
    def __init__(self):
        set_attribute = super().__setattr__
        set_attribute("training", True)
        for name in ("_parameters", "_buffers", "_modules"):
            set_attribute(name, {})
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            set_attribute(name, OrderedDict())

    def __setattr__(self, name, value):
        for kind, holder in ((Parameter, "_parameters"), (Module, "_modules")):
            if isinstance(value, kind):
                self.__dict__.pop(name, None)
                self.__dict__[holder][name] = value
                return
        if name in self.__dict__.get("_buffers", ()):
            self._buffers[name] = value
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name):
        for holder in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(holder, {})
            if name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def register_buffer(self, name, value):
        self._buffers[name] = value

    def add_module(self, name, module):
        self._modules[name] = module

    def _hook(self, hooks, hook):
        key = len(hooks)
        while key in hooks:
            key += 1
        hooks[key] = hook
        return _Handle(hooks, key)

    def register_forward_hook(self, hook):
        return self._hook(self._forward_hooks, hook)

    def register_forward_pre_hook(self, hook):
        return self._hook(self._forward_pre_hooks, hook)

    def modules(self):
        yield self
        for child in self._modules.values():
            yield from child.modules()

    def state_dict(self, prefix=""):
        state = {}
        for holder in (self._parameters, self._buffers):
            for name, value in holder.items():
                state[prefix + name] = value.detach()
        for name, child in self._modules.items():
            state.update(child.state_dict(prefix + name + "."))
        return state

    def load_state_dict(self, state, prefix=""):
        with torch.no_grad():
            for holder in (self._parameters, self._buffers):
                for name, value in holder.items():
                    value.copy_(state[prefix + name])
        for name, child in self._modules.items():
            child.load_state_dict(state, prefix + name + ".")

    def _apply(self, function):
        for child in self._modules.values():
            child._apply(function)
        for parameter in self._parameters.values():
            parameter.data = function(parameter.data)
        for name, buffer in self._buffers.items():
            self._buffers[name] = function(buffer)
        return self

    def cuda(self):
        return self._apply(lambda x: x.cuda())

    def cpu(self):
        return self._apply(lambda x: x.cpu())

    def train(self, mode=True):
        self.training = mode
        for child in self._modules.values():
            child.train(mode)
        return self

    def eval(self):
        return self.train(False)

    def _wrapped_call_impl(self, *args, **kwargs):
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args, **kwargs):
        forward_call = self.forward
        if not (self._forward_hooks or self._forward_pre_hooks or _global_forward_hooks or _global_forward_pre_hooks):
            return forward_call(*args, **kwargs)
        for hook in (*_global_forward_pre_hooks.values(), *self._forward_pre_hooks.values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        result = forward_call(*args, **kwargs)
        for hook in (*_global_forward_hooks.values(), *self._forward_hooks.values()):
            changed = hook(self, args, result)
            if changed is not None:
                result = changed
        return result

    __call__ = _wrapped_call_impl


def register_module_forward_hook(hook):
    _global_forward_hooks[len(_global_forward_hooks)] = hook
    return _Handle(_global_forward_hooks, len(_global_forward_hooks) - 1)
