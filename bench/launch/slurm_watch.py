"""A submitted job as a waiting driver sees it: does it still go on, and what is worth telling. Pure: looks come in."""

from __future__ import annotations

from bench.launch.slurm_commands import JobState

HEADLESS_PATIENCE_S = 30.0  # of the runners that are left, to bring home what they have measured
COMPLETING_PATIENCE_S = 120.0  # a job's script is over when it completes, yet a dead node can keep it so for ever
REQUEUE_PATIENCE_S = 900.0  # a job that may be queued again completes first, as long as its nodes' epilogs take
SILENCE_PATIENCE_S = 900.0  # of a controller that does not answer; the job itself may go on all the while
ASKED = 130  # exit code of a runner that was asked to end


class Watch:
    """`alive` until a look shows the end. `silent`: given up for want of answers, with the job's fate unknown.

    `returns`: Slurm may queue the job again once it has completed.
    """

    def __init__(self, job: str, now: float, returns: bool = False) -> None:
        self.job = job
        self._returns = returns
        self._completing_patience_s = REQUEUE_PATIENCE_S if returns else COMPLETING_PATIENCE_S
        self.alive = True
        self.silent = False
        self.to_cancel = False  # it would stay for long and for nothing
        self.state: JobState | None = None
        self._told = ""
        self._news: list[str] = []
        self._answered = now
        self._completing: float | None = None
        self._headless: float | None = None

    def see(self, now: float, state: JobState | None) -> None:
        """What a look showed. None: Slurm does not know the job any more."""
        self._answered, self.state = now, state
        if state is None:
            self._end("is no longer known to Slurm, so it has ended")
            return
        self._completing = _since(self._completing, now, state.state == "COMPLETING")
        self._headless = _since(self._headless, now, state.headless)
        if not state.alive:
            self._end(_how_it_ended(state))
        elif self._completing is not None and now - self._completing > self._completing_patience_s:
            again = " and was not queued again" if self._returns else ""
            self._end(f"has been completing for {self._completing_patience_s:.0f} s{again}; its runners are gone")
        elif self._headless is not None and now - self._headless > HEADLESS_PATIENCE_S:
            self.to_cancel = True
            self._end("has lost its first node, where its script and the coordinator ran; it is cancelled")
        elif state.hopeless:
            self.to_cancel = True
            self._end(f"cannot start ({_words(state.reason)}); it is cancelled")
        else:
            self._tell(_where_it_stands(state, self._returns))

    def no_answer(self, now: float, why: str) -> None:
        """A look that failed. The wait ends when Slurm has been silent for long, and the job is left alone."""
        if now - self._answered > SILENCE_PATIENCE_S:
            self.silent = True
            self._end(f"is out of sight: Slurm has not answered for {SILENCE_PATIENCE_S / 60:.0f} minutes ({why})")
        else:
            self._tell(f"cannot be looked at just now ({why})")

    def news(self) -> list[str]:
        news, self._news = self._news, []
        return news

    def _end(self, how: str) -> None:
        self.alive = False
        self._tell(how)

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._news.append(f"job {self.job} {text}")


def _since(before: float | None, now: float, so: bool) -> float | None:
    """Since when something has been so, without a break."""
    return (now if before is None else before) if so else None


def _where_it_stands(state: JobState, returns: bool) -> str:
    again = f", started again {state.restarts} time{'s' * (state.restarts > 1)}" if state.restarts else ""
    if state.state == "PENDING":
        start = f"; Slurm expects it to start at {state.start.replace('T', ' ')}" if state.start else ""
        return f"waits ({_words(state.reason) or 'in the queue'}{again}){start}"
    if state.state == "RUNNING":
        return f"runs on {state.nodes}{again}"
    if state.state == "COMPLETING" and returns:
        return f"is completing{again}; waiting for its nodes to be free, and to see whether Slurm queues it again"
    return f"is {state.state.lower()}{again}"


def _how_it_ended(state: JobState) -> str:
    if state.state == "COMPLETED":
        return "has ended"
    if state.state == "FAILED" and state.code == ASKED:
        return "has ended in order before its work was done: its time limit came near, or somebody asked it to"
    code = f", ended by signal {-state.code}" if state.code < 0 else f", exit code {state.code}" if state.code else ""
    reason = f", {_words(state.reason)}" if state.reason and state.reason != "NonZeroExitCode" else ""
    return f"has ended: {state.state}{reason}{code}"


def _words(reason: str | None) -> str:
    return (reason or "").replace("_", " ")
