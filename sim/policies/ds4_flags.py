"""The flags of ds4-server: what each is here, or why nothing here depends on it.

From the option list of upstream (September and October 2026); versions and rounding rules from
``ds4_server.c`` and ``ds4_kvstore.c``.
"""

from __future__ import annotations

from fractions import Fraction

from sim.flags import Flag, FlagTable, flag

_AUGUST = "4 August 2026"
_STREAMING = "experts outside memory are not modelled yet"
_DRAFT = "speculative decoding is not modelled"
_PLACES = "several machines or GPUs are not modelled"
_MIB = Fraction(2**20)
_ON_DISK = "--kv-disk-dir kv-cache"

_MODELLED = (
    Flag(
        names=("--mixed-prefill-quantum",),
        key="policy.mixed_quantum_tokens",
        since=_AUGUST,
        note="at least 1024 with GLM 5.3",
    ),
    flag("--batched-session", "engine.slot_count"),
    flag("--prefill-chunk", "engine.prefill_cap_tokens"),
    flag("--ctx", "kv.slot_context_tokens", "-c"),
    Flag(
        names=("--kv-cache-continued-interval-tokens",),
        key="kv.continued_interval_tokens",
        multiple=2048,
        zero_is_off=True,
        needs=_ON_DISK,
    ),
    Flag(
        names=("--kv-disk-space-mb",),
        key="kv.disk_budget_bytes",
        factor=_MIB,
        unit="MiB",
        least=1,
        needs=_ON_DISK,
    ),
    Flag(names=("--kv-disk-dir",), key="kv.disk_budget_bytes", gives=4096 * 2**20),
    flag("--kv-cache-cold-max-tokens", "kv.cold_max_tokens", needs=_ON_DISK),
    flag("--kv-cache-min-tokens", "kv.checkpoint_min_tokens", needs=_ON_DISK),
    Flag(
        names=("DS4_SERVER_DECODE_COALESCE_US",),
        key="policy.coalesce_s",
        factor=Fraction(1, 10**6),
        unit="microseconds",
    ),
    Flag(
        names=("DS4_SERVER_MIXED_PREFILL_QUANTUM",),
        key="policy.mixed_quantum_tokens",
        until=_AUGUST,
    ),
    Flag(names=("DS4_SERVER_PREFILL_QUANTUM",), key="policy.idle_quantum_tokens", until=_AUGUST),
)


def _ignored(reason: str, *names: str, key: str = "", factor: Fraction = Fraction(1)) -> Flag:
    return Flag(names=names, ignored=reason, key=key, factor=factor)


def _switches(reason: str, *names: str) -> tuple[Flag, ...]:
    return tuple(Flag(names=(name,), ignored=reason, has_value=False) for name in names)


def _plain(*names: str) -> tuple[Flag, ...]:
    return tuple(Flag(names=(name,)) for name in names)


_NOT_MODELLED = (
    _ignored("anchors leave out 32 tokens here", "--kv-cache-boundary-trim-tokens"),
    _ignored("the alignment of checkpoints is 2048 here", "--kv-cache-boundary-align-tokens"),
    *_switches("one model is served here", "--kv-cache-reject-different-quant"),
    _ignored("every resident session may be active here", "--max-active-requests"),
    _ignored("no request is turned away for a long queue here", "--max-queue"),
    _ignored("clients say how many tokens they want", "--tokens", "-n"),
    _ignored("the profile is of full power", "--power"),
    *_switches(_STREAMING, "--ssd-streaming", "--ssd-streaming-cold"),
    _ignored(_STREAMING, "--ssd-streaming-cache-experts"),
    _ignored(_STREAMING, "--ssd-streaming-full-layers"),
    _ignored(_STREAMING, "--ssd-streaming-preload-experts"),
    _ignored(_DRAFT, "--mtp"),
    _ignored(_DRAFT, "--mtp-draft"),
    _ignored(_DRAFT, "--mtp-margin"),
    *_switches(_DRAFT, "--glm-mtp", "--glm-mtp-timing", "--dspark", "--dspark-strict"),
    _ignored(_DRAFT, "--dspark-confidence"),
    _ignored(_PLACES, "--role"),
    _ignored(_PLACES, "--layers"),
    _ignored(_PLACES, "--gpu-vram"),
    _ignored(_PLACES, "--gpu-devices"),
    *_switches(_PLACES, "--tensor-parallel", "--cuda-tensor-parallel"),
    *_switches("the profile says how fast the kernels are", "--quality"),
)

_NO_MATTER = (
    Flag(names=("--model", "-m")),
    Flag(names=("--threads", "-t")),
    *_plain("--host", "--port", "--trace", "--backend", "--vision", "--tool-memory-max-ids"),
    *_switches("", "--metal", "--cuda", "--rocm", "--cpu", "--cors", "--warm-weights"),
    *_switches("", "--disable-exact-dsml-tool-replay"),
    *_plain("DS4_SERVER_BATCH_LOG"),
)

DS4_FLAGS = FlagTable("ds4-server", (*_MODELLED, *_NOT_MODELLED, *_NO_MATTER))
