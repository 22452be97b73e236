"""A profile: the fitted numbers of one engine build on one machine with one model.

A profile is a TOML file, made by ``moesim calibrate``, never by hand. All of it, shortened::

    name = "ds4-m3-ultra"
    kind = "full"  # linear | full | padded | table
    description = "ds4-server, DeepSeek V4 Flash q2, M3 Ultra"

    [cost]  # seconds; the fields of one form in sim.coefficients
    prefill_chunk_s = 0.012
    prefill_token_s = 1.69e-3
    prefill_context_s = 1.17e-8
    prefill_knee_tokens = 512
    prefill_knee_token_s = 7.9e-4
    decode_step_s = 0.0
    decode_row_s = 0.0248
    decode_context_s = 6.5e-8
    decode_after_prefill_s = 0.08

    [engine]  # EngineSettings; a scenario's [engine] overrides each key
    policy = "ds4"
    first_token = "decode"
    prefill_cap_tokens = 4096
    decode_batching = "serial"
    slot_count = 6

    [kv]  # KvSettings; likewise
    partial_reuse = false
    continued_interval_tokens = 10240
    checkpoint_base_bytes = 23_900_000
    checkpoint_bytes_per_token = 13_770.0
    save_bytes_per_s = 6.9e9

    [machine]
    name = "Mac Studio M3 Ultra"
    memory_bytes = 549_755_813_888

    [model]
    name = "DeepSeek V4 Flash q2"
    layer_count = 43
    expert_count = 256
    experts_per_token = 6
    weights_bytes = 90_000_000_000

    [routing]
    distribution = "lognormal"  # uniform | lognormal | empirical
    sigma = 2.34

    [coefficients.prefill_token_s]  # one table for each fitted number of [cost] and [kv]
    value = 1.69e-3  # equals the number there
    unit = "s/token"
    standard_error = 1.1e-5
    obtained = "fitted from m3_ultra_sweep.csv, 31 rows"

    [covariance]  # optional; names order the rows and columns
    names = ["prefill_token_s", "prefill_context_s"]
    values = [[1.2e-10, 0.0], [0.0, 4.0e-22]]
    degrees_of_freedom = 5  # optional: of the estimate of the covariance

    [range]  # measured; outside it results are marked
    prefill_chunk_tokens = [128, 8192]
    prefill_context_tokens = [0, 65536]
    decode_rows = [1, 6]
    decode_context_tokens = [0, 65536]

    [residuals.prefill]  # relative: (fitted - measured) / measured
    count = 31
    mean = 0.001
    rms = 0.004
    p50 = 0.003  # of the absolute residuals
    p90 = 0.007
    max = 0.011

    [provenance]
    engine = "ds4-server"
    engine_version = "480f2ae"
    command = "moesim calibrate m3_ultra_sweep.csv -o ds4-m3-ultra.toml"
    unmeasured = ["server overhead"]

    [[provenance.data]]
    path = "calibration/data/m3_ultra_sweep.csv"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    rows = 31

The table of a scenario may hold a profile in flat form: ``kind`` and the numbers of ``[cost]`` side
by side, and if need be the tables ``engine``, ``kv``, ``machine``, ``model`` and ``routing``.
"""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator

from sim.coefficients import AnyCoefficients
from sim.documents import Document, find, shipped
from sim.errors import InputError
from sim.fields import Name, Table, TokensOrNone, digest
from sim.settings import EngineSettings, KvSettings, Machine, Model, RoutingSettings
from sim.validation import problems_of

GROUP = "moesim.profiles"
"""Entry-point group of the packages that ship profiles."""

OVERRIDDEN = "overridden: instead of "
"""Begins how a coefficient was obtained that an option has changed; what it was follows."""

_Interval = tuple[TokensOrNone, TokensOrNone]


class Coefficient(Table):
    """One fitted number and what is known of it."""

    value: float
    unit: str
    standard_error: Annotated[float, Field(ge=0)] | None = None
    obtained: str
    """How: fitted from which data, taken from which source, assumed and why."""

    @property
    def is_overridden(self) -> bool:
        """Whether an option has changed it: it is assumed then, whatever it was."""
        return self.obtained.startswith(OVERRIDDEN)


class Covariance(Table):
    """Covariance of fitted numbers, in the order of `names`."""

    names: tuple[Name, ...]
    values: tuple[tuple[float, ...], ...]
    degrees_of_freedom: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """That the covariance itself was estimated with; as good as known when absent."""
    obtained: str = ""
    """How, and what is not in it."""

    @model_validator(mode="after")
    def _square(self) -> Self:
        if {len(self.names)} != {len(self.values), *map(len, self.values)}:
            raise ValueError(f"values must be a square of {len(self.names)} names")
        if len(set(self.names)) < len(self.names):
            raise ValueError("names must differ")
        for row, name in enumerate(self.names):
            if self.values[row][row] < 0:
                raise ValueError(f"the variance of {name} is below 0")
            for column, other in enumerate(self.names[:row]):
                one, same = self.values[row][column], self.values[column][row]
                most = math.sqrt(self.values[row][row] * self.values[column][column])
                if not math.isclose(one, same, rel_tol=1e-6, abs_tol=1e-9 * most):
                    raise ValueError(f"{name} with {other} is {one:g}, the other way {same:g}")
                if abs(one) > most * (1 + 1e-6):
                    raise ValueError(f"{name} with {other} is more than their variances allow")
        return self


class MeasuredRange(Table):
    """Smallest and largest measured value of each axis; results outside are marked."""

    prefill_chunk_tokens: _Interval | None = None
    prefill_context_tokens: _Interval | None = None
    decode_rows: _Interval | None = None
    decode_context_tokens: _Interval | None = None

    @field_validator("*")
    @classmethod
    def _ordered(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and value[0] > value[1]:
            raise ValueError(f"{value[0]} is above {value[1]}")
        return value


class Residuals(Table):
    """Relative residuals of the fit; p50, p90 and max are of absolute values."""

    count: Annotated[int, Field(ge=0)]
    mean: float
    """Signed: the bias."""
    rms: Annotated[float, Field(ge=0)]
    p50: Annotated[float, Field(ge=0)]
    p90: Annotated[float, Field(ge=0)]
    max: Annotated[float, Field(ge=0)]


class DataFile(Table):
    """A file that the fit read."""

    path: Name
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    rows: Annotated[int, Field(ge=0)] | None = None
    source: str = ""


class Provenance(Table):
    """Where the numbers come from."""

    engine: str = ""
    engine_version: str = ""
    machine: str = ""
    model: str = ""
    command: str = ""
    """Makes the file again."""
    notes: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()
    """Parts that no data covers."""
    data: tuple[DataFile, ...] = ()


class Profile(Table):
    """The fitted numbers of an engine on a machine with a model; see the module for the file."""

    name: Name = "inline"
    kind: Literal["linear", "full", "padded", "table"]
    description: str = ""
    cost: AnyCoefficients
    engine: EngineSettings = EngineSettings()
    kv: KvSettings = KvSettings()
    machine: Machine = Machine()
    model: Model = Model()
    routing: RoutingSettings = RoutingSettings()
    coefficients: dict[str, Coefficient] = Field(default_factory=dict)
    covariance: Covariance | None = None
    range: MeasuredRange = MeasuredRange()
    residuals: dict[str, Residuals] = Field(default_factory=dict)
    provenance: Provenance = Provenance()

    @model_validator(mode="before")
    @classmethod
    def _nested(cls, value: Any) -> Any:
        """Accept the flat form, and let `kind` choose the form of the cost."""
        if not isinstance(value, dict):
            return value
        value = dict(value)
        if "cost" not in value:
            value["cost"] = {key: value.pop(key) for key in list(value) if is_flat_key(key)}
        if isinstance(value["cost"], dict) and isinstance(value.get("kind"), str):
            value["cost"] = {"kind": value["kind"], **value["cost"]}
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.cost.kind != self.kind:
            raise ValueError(f"kind is {self.kind}, but cost.kind is {self.cost.kind}")
        form = getattr(self.cost, "expert_form", "none")
        if form != "none" and None in (self.model.expert_count, self.model.experts_per_token):
            needs = "model.expert_count and model.experts_per_token"
            raise ValueError(f"expert_form {form} needs {needs}")
        weights, experts = self.routing.weights, self.model.expert_count
        if weights and experts is not None and len(weights) != experts:
            raise ValueError(f"{len(weights)} routing.weights for model.expert_count {experts}")
        for name, coefficient in self.coefficients.items():
            for table, values in (("cost", self.cost), ("kv", self.kv)):
                number = getattr(values, name, None)
                if isinstance(number, int | float) and not math.isclose(number, coefficient.value):
                    raise ValueError(
                        f"coefficients.{name}.value is {coefficient.value:g}, but {table}.{name} "
                        f"is {number:g}: they are one number, which the option --set "
                        f"profile.{name}=... changes in both places"
                    )
        return self

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the content, the same on every machine."""
        return digest(self.model_dump(mode="json"))


def is_flat_key(key: str) -> bool:
    """Return whether a key beside ``kind`` in a flat profile belongs to its cost."""
    return key not in Profile.model_fields


def check_profile(document: Document) -> Profile:
    """Return the profile in a document.

    Raises
    ------
    InputError
        With every problem found.
    """
    try:
        return Profile.model_validate(document.frozen, context={"base": document.base})
    except ValidationError as error:
        raise InputError(*problems_of(error, Profile, document)) from None


def find_profile(name_or_path: str | Path, base: Path = Path()) -> Profile:
    """Return a profile by the name of a shipped one or by path.

    Parameters
    ----------
    name_or_path
        A name, or a path relative to `base`: whatever holds a separator or ends in ``.toml``.
    base
        Folder of the file that names the profile.

    Raises
    ------
    InputError
        No such profile, or something in it is wrong; carries every problem found.
    """
    return check_profile(find(name_or_path, GROUP, "profile", base))


def list_profiles() -> list[str]:
    """Return the names of the shipped profiles, sorted."""
    return sorted(shipped(GROUP))
