"""The flags of mlx_lm.server 0.32.2: what each is here, or why nothing here depends on it."""

from __future__ import annotations

from sim.flags import Flag, FlagTable, flag

_MODELLED = (
    flag("--prefill-step-size", "policy.prefill_step_tokens"),
    flag("--prompt-concurrency", "policy.prompt_concurrency"),
    flag("--decode-concurrency", "policy.decode_concurrency"),
    flag("--prompt-cache-size", "policy.prompt_cache_sequences"),
)


def _ignored(reason: str, *names: str) -> Flag:
    return Flag(names=names, ignored=reason)


_NOT_MODELLED = (
    _ignored("bytes of the prompt cache are not counted here", "--prompt-cache-bytes"),
    _ignored("clients say how many tokens they want", "--max-tokens"),
    _ignored("a server that does not batch is not modelled", "--kv-bits"),
    _ignored("a server that does not batch is not modelled", "--kv-group-size"),
    _ignored("a server that does not batch is not modelled", "--quantized-kv-start"),
    _ignored("speculative decoding is not modelled", "--draft-model"),
    _ignored("speculative decoding is not modelled", "--num-draft-tokens"),
    Flag(names=("--pipeline",), ignored="several machines are not modelled", has_value=False),
)

_NO_MATTER = (
    *[
        Flag(names=(name,))
        for name in (
            "--model", "--adapter-path", "--host", "--port", "--allowed-origins", "--log-level",
            "--chat-template", "--chat-template-args", "--temp", "--top-p", "--top-k", "--min-p",
        )
    ],
    Flag(names=("--trust-remote-code",), has_value=False),
    Flag(names=("--use-default-chat-template",), has_value=False),
)  # fmt: skip

MLX_LM_FLAGS = FlagTable("mlx_lm.server", (*_MODELLED, *_NOT_MODELLED, *_NO_MATTER))
