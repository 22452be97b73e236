"""The table of layers is the architecture page; a wrong arrow fails here."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = ("sim", "calibration", "scenarios", "figures")

# A module imports from its own row or from rows above it. A package stands for its modules, unless
# a module of it has a place of its own.
LAYERS = [
    # What everything talks in.
    "sim.exit_codes sim.units sim.errors sim.rng sim.request sim.resident sim.run sim.view "
    "sim.observer sim.watcher",
    # The kernel: choose, price, account, let time pass.
    "sim.experts sim.cost sim.flags sim.policies sim.kv sim.checkpoint_rules sim.disk_store "
    "sim.disk_cache sim.stops sim.lock sim.priced sim.work_checks sim.layout sim.ledger "
    "sim.engine sim.audit sim.guard",
    # Input: from TOML to a frozen scenario.
    "sim.fields sim.unit_words sim.lines sim.documents sim.validation sim.distribution_form "
    "sim.distribution_kinds sim.distributions sim.coefficients sim.settings sim.memory "
    "sim.profiles sim.trace_file sim.replayed "
    "sim.client_fields sim.agent_tables sim.client_tables sim.policy_choice "
    "sim.memory_checks sim.size_checks sim.disk_checks sim.idle_checks sim.launch_words "
    "sim.scenario sim.overrides sim.shell_words sim.given_flags sim.engine_args "
    "sim.launch_line sim.checks sim.findings sim.profile_choice sim.policy_table "
    "sim.unknowns sim.unknown_checks sim.loading sim.schema sim.cost.build",
    # Who asks the engine.
    "sim.client_side sim.world sim.clients",
    # What happened, as declared tables.
    "sim.columns sim.steps sim.block sim.spans sim.digest sim.results sim.assemble sim.recorder "
    "sim.atomic sim.result_files",
    # Numbers from tables.
    "sim.intervals sim.spread sim.phases sim.retention sim.open_loop sim.metric "
    "sim.executor_metrics sim.metric_table sim.agent_metrics sim.metrics sim.variants",
    # Runs, and many runs.
    "sim.this_machine sim.nearest "
    "sim.manifest sim.simulation sim.disk_books sim.books sim.cases sim.pencil sim.conformance "
    "sim.estimates sim.replicated sim.experiment sim.levers sim.headroom sim.in_between "
    "sim.metric_paths sim.causes sim.explain sim.validity sim.recorded sim.suites sim.agreement "
    "sim.known_misses sim.calibration_draws sim.workload_draws sim.propagation",
    "sim.start sim.cli",
    "calibration",
    "figures",
]
RANKS = {name: rank for rank, row in enumerate(LAYERS) for name in row.split()}
LEAVES = {"sim", "scenarios"}
"""Import nothing of ours."""


def modules() -> dict[str, Path]:
    """Return every module of ours by name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for top in OURS
        for path in sorted((ROOT / top).rglob("*.py"))
    }


MODULES = modules()


def imported(path: Path) -> set[str]:
    """Return our modules that a module imports, also inside functions, but not for types alone."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *[f"{node.module}.{alias.name}" for alias in node.names]}
    return found & set(MODULES)


IMPORTS = {name: imported(path) - {name} for name, path in MODULES.items()}


def rank(name: str) -> int:
    """Return the row of a module, or of the package that stands for it."""
    while name not in RANKS and "." in name:
        name = name.rpartition(".")[0]
    return RANKS[name]


def test_every_module_has_a_layer() -> None:
    for name in MODULES.keys() - LEAVES:
        assert name in RANKS or rank(name) is not None


def test_every_name_of_the_table_exists() -> None:
    assert set(RANKS) <= set(MODULES)


def test_imports_point_upwards() -> None:
    wrong = [
        f"{name} imports {target}"
        for name, targets in IMPORTS.items()
        for target in targets
        if name in LEAVES or (target not in LEAVES and rank(target) > rank(name))
    ]
    assert not wrong


def test_no_cycles() -> None:
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    graph = {
        # `from sim.policies.ds4 import Ds4` also runs sim/policies/__init__.py.
        name: {
            target for target in targets if target not in packages or not name.startswith(target)
        }
        for name, targets in IMPORTS.items()
    }
    TopologicalSorter(graph).prepare()


def test_time_passes_in_one_place() -> None:
    """Only the engine waits for works; clients wait for pauses and answers."""
    waiting = {name for name, path in MODULES.items() if "simpy" in path.read_text()}
    allowed = ("sim.engine", "sim.client_side", "sim.world", "sim.clients", "sim.simulation")
    allowed += ("sim.books", "sim.cases", "sim.pencil")
    allowed += ("calibration.record.world",)  # real time, which passes by itself
    assert {name for name in waiting if not name.startswith(allowed)} == set()


def test_no_other_distribution_owns_our_names() -> None:
    owners = packages_distributions()
    strangers = {name: set(owners.get(name, [])) - {"moesim"} for name in (*OURS, "moesim")}
    assert not any(strangers.values()), strangers
    for name in OURS:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        assert Path(spec.origin).is_relative_to(ROOT), spec.origin


def test_modules_stay_small() -> None:
    sizes = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: size for name, size in sizes.items() if size > 350} == {}
