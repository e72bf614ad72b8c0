"""Makes a program that differs shorter: statements and functions are dropped, blocks opened, for as long as it differs
in the same way (Difference.kind)."""

import ast
import copy
import time

PASS = ast.Pass()


def bodies(tree):
    """Each list of statements in the tree."""
    for node in ast.walk(tree):
        for field in ("body", "orelse"):
            inside = getattr(node, field, None)
            if isinstance(inside, list):  # empty ones too: the numbers of lists stay as statements go
                yield node, inside


def text_of(tree):
    tree = copy.deepcopy(tree)
    for node in ast.walk(tree):
        if isinstance(getattr(node, "body", None), list) and not node.body:
            node.body.append(PASS)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def without(tree, where, begin, count):
    """A copy without `count` statements of the list with this number, or with the block there opened (count 0)."""
    made = copy.deepcopy(tree)
    inside = list(bodies(made))[where][1]
    if count:
        del inside[begin : begin + count]
        return made
    node = inside[begin]
    if not isinstance(node, (ast.With, ast.For, ast.If)):
        return None
    inside[begin : begin + 1] = node.body if not isinstance(node, ast.For) else [
        ast.Assign(targets=[node.target], value=node.iter.args[0] if getattr(node.iter, "args", None) else node.iter),
        *node.body,
    ]  # fmt: skip
    return made


class Shrinker:
    def __init__(self, pair, name, limit):
        self.pair, self.name, self.limit, self.number = pair, name, limit, 0
        self.left = self.kind = None

    def differs(self, text):
        self.number += 1
        name = f"{self.name}_{self.number}"
        found = self.pair.compare([(name, text)])[name]
        if found is None or self.kind not in (None, found.kind()):
            return False
        self.left, self.kind = found, found.kind()
        return True

    def out_of_time(self):
        return time.monotonic() > self.limit

    def drop(self, tree, where, size):
        """Drops runs of `size` statements of one list, from its end."""
        begin = len(list(bodies(tree))[where][1]) - size
        while begin >= 0 and not self.out_of_time():
            inside = list(bodies(tree))[where][1]
            if all(isinstance(one, ast.Pass) for one in inside[begin : begin + size]):
                begin -= size
                continue
            made = without(tree, where, begin, size)
            if self.differs(text_of(made)):
                tree = made
            begin -= size
        return tree

    def open_blocks(self, tree):
        where = 0
        while where < len(list(bodies(tree))) and not self.out_of_time():
            for begin in range(len(list(bodies(tree))[where][1])):
                made = without(tree, where, begin, 0)
                if made is not None and self.differs(text_of(made)):
                    tree = made
                    break
            where += 1
        return tree

    def run(self, text):
        tree = ast.parse(text)
        before = None
        while before != ast.dump(tree) and not self.out_of_time():
            before = ast.dump(tree)
            for size in (16, 8, 4, 2, 1):
                tree = self.drop(tree, 0, size)
            for where in range(len(list(bodies(tree))) - 1, 0, -1):
                if where < len(list(bodies(tree))):
                    for size in (4, 1):
                        tree = self.drop(tree, where, size)
            tree = self.open_blocks(tree)
        return text_of(tree)


def shrink(pair, name, text, seconds):
    """The shorter program and its difference; None for that: it does not differ when it runs alone."""
    shrinker = Shrinker(pair, name, time.monotonic() + seconds)
    if not shrinker.differs(text):
        return text, None
    return shrinker.run(text), shrinker.left
