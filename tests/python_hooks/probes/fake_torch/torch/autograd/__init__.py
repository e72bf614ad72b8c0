from torch import _C


class Variable:
    _execution_engine = _C._ImperativeEngine()


def backward(tensor, **keywords):
    return Variable._execution_engine.run_backward(tensor.functions, **keywords)
