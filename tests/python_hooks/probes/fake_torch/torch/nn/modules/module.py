class Module:
    def __init__(self):
        object.__setattr__(self, "_modules", {})
        object.__setattr__(self, "_forward_hooks", {})

    def __setattr__(self, name, value):
        if isinstance(value, Module):
            self.__dict__["_modules"][name] = value
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name):
        modules = self.__dict__.get("_modules")
        if modules is not None and name in modules:
            return modules[name]
        raise AttributeError(name)

    def add_module(self, name, module):
        self._modules[name] = module

    def _wrapped_call_impl(self, *args, **kwargs):
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args, **kwargs):
        forward_call = self.forward
        if not self._forward_hooks:
            return forward_call(*args, **kwargs)
        result = forward_call(*args, **kwargs)
        for hook in self._forward_hooks.values():
            hook(self, args, result)
        return result

    __call__ = _wrapped_call_impl
