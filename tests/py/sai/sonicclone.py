"""A user's clone of sonic-mgmt: whether what the tests need is there, whether the stubs have all that it imports, and what its
test classes are.

missing_files(CLONE) and missing_names(CLONE, STUBS) -> what is missing, as text for people; classes(CLONE, FOLDER);
digest(CLONE, FOLDER, TEST) and identifiers(CLONE, FOLDER, TEST) of one class.

Source: Python's ast; nothing of the clone is run.
"""

import ast
import hashlib
import os

TESTS = os.path.join("tests", "saitests")
FILES = [os.path.join(TESTS, "py3", f"{name}.py") for name in ("sai_base_test", "sai_qos_tests", "switch", "texttable")]
PACKAGE = "switch_sai_thrift"


def folder(clone, name):
    """Where the clone has tests: `py3` or `probe`."""
    return os.path.join(clone, TESTS, name)


def missing_files(clone):
    """Files that no test can do without and that are not there."""
    return [path for path in FILES if not os.path.isfile(os.path.join(clone, path))]


def parsed(path):
    """The syntax tree of a file; a file that is no Python is an error that names it."""
    with open(path, encoding="utf-8", errors="replace") as file:
        try:
            return ast.parse(file.read(), path)
        except (SyntaxError, ValueError) as err:
            raise ValueError(f"{path} is no Python: {err}") from err


def sources(clone):
    """The clone's modules that tests are made of."""
    for name in ("py3", "probe"):
        place = folder(clone, name)
        if os.path.isdir(place):
            yield from (os.path.join(place, file) for file in sorted(os.listdir(place)) if file.endswith(".py"))


def defined(stubs, module):
    """Names that a module of the stubs defines or imports."""
    tree = parsed(os.path.join(stubs, PACKAGE, f"{module}.py"))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return names


def missing_names(clone, stubs):
    """Names that the clone imports of the stubs and that these do not have, each as `module.name`."""
    missing = set()
    for path in sources(clone):
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(f"{PACKAGE}."):
                continue
            module = node.module.split(".", 1)[1]
            if not os.path.isfile(os.path.join(stubs, PACKAGE, f"{module}.py")):
                missing.add(node.module)
                continue
            have = defined(stubs, module)
            missing |= {f"{module}.{one.name}" for one in node.names if one.name not in have | {"*"}}
    return sorted(missing)


def class_of(clone, place, test):
    """The syntax tree of a class, `module.Class`, and the text of its module; None if there is none."""
    module, name = test.split(".")
    path = os.path.join(folder(clone, place), f"{module}.py")
    if not os.path.isfile(path):
        return None
    found = [node for node in parsed(path).body if isinstance(node, ast.ClassDef) and node.name == name]
    with open(path, encoding="utf-8", errors="replace") as file:
        return (found[-1], file.read()) if found else None


def digest(clone, place, test):
    """What a class's code comes to, comments and empty lines apart; None if there is no such class."""
    found = class_of(clone, place, test)
    if not found:
        return None
    node, text = found
    lines = (line.rstrip() for line in text.splitlines()[node.lineno - 1 : node.end_lineno])
    code = "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))
    return hashlib.sha256(code.encode()).hexdigest()[:12]


def identifiers(clone, place, test):
    """Names of variables that a class uses."""
    found = class_of(clone, place, test)
    nodes = ast.walk(found[0]) if found else ()
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name))


def classes(clone, place):
    """Test classes of a folder, as `module.Class`."""
    found = set()
    where = folder(clone, place)
    for file in os.listdir(where) if os.path.isdir(where) else []:
        if file.endswith(".py"):
            tree = parsed(os.path.join(where, file))
            found |= {f"{file[:-3]}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)}
    return found
