"""Reading answers of the Anthropic messages API, which many coding agents speak."""

from __future__ import annotations

import json
from typing import Any

from calibration.record.stream import ChatReader, shown


class MessagesReader(ChatReader):
    """Reads the events of a message; its usage comes out under the names of chat completions."""

    def _event(self, event: Any, instant_s: float) -> None:
        kind, answer = event.get("type"), self.answer
        if kind == "error":
            answer.error = f"error: {shown(json.dumps(event.get('error')).encode())}"
        elif kind == "message_start":
            self._usage(event["message"].get("usage") or {})
        elif kind == "content_block_delta":
            self._piece(event["delta"], instant_s)
        elif kind == "message_delta":
            self._stop(event["delta"], instant_s)
            self._usage(event.get("usage") or {})
        elif kind == "message_stop":
            answer.is_done = True
        elif kind == "message":  # whole, not streamed
            for block in event.get("content") or ():
                self._piece(block, instant_s)
            self._stop(event, instant_s)
            self._usage(event.get("usage") or {})

    def _piece(self, block: Any, instant_s: float) -> None:
        text = block.get("text") or ""
        if text:
            self.answer.content.append(text)
        other = block.get("thinking") or block.get("partial_json") or ""
        if block.get("type") == "tool_use":
            other = json.dumps(block.get("input"))
        if text or other:
            self.answer.chunks.append((instant_s, len(text) + len(other)))

    def _stop(self, message: Any, instant_s: float) -> None:
        if message.get("stop_reason"):
            self.answer.finish_reason = str(message["stop_reason"])[:40]
            self.answer.finish_reason_s = instant_s

    def _usage(self, told: Any) -> None:
        usage = self.answer.usage
        if "input_tokens" in told:
            # The parts of the prompt that were read from the cache or written to it come apart.
            read, written = (
                told.get(f"cache_{what}_input_tokens") or 0 for what in ("read", "creation")
            )
            usage["prompt_tokens"] = told["input_tokens"] + read + written
            usage["prompt_tokens_details"] = {"cached_tokens": read}
        if "output_tokens" in told:
            usage["completion_tokens"] = told["output_tokens"]
