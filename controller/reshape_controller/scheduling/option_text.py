"""A chosen option in words: what it does, and what that saves.

Does: names the jobs, GPUs and figures that decided; it decides nothing.
"""

from __future__ import annotations

from reshape_controller.core.phrases import duration, gpus
from reshape_controller.core.plan import JobView
from reshape_controller.scheduling import candidates
from reshape_controller.scheduling.candidates import RankedOption
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.predictor import to_ms


def text_of(
    forecast: Forecast,
    job: JobView,
    chosen: RankedOption,
    baseline: tuple[int, int],
    *,
    waits: bool,
) -> str:
    """Return the decision in a sentence or two. ``baseline``: the figures of the objective, in its
    order, if no running job is reshaped; ``waits``: that means that the job waits."""
    in_order = forecast.rules.objective.in_order
    makespan, total = in_order(*chosen[:2])
    base_makespan, base_total = in_order(*baseline)
    saved = base_total - total
    text = f"{_action_text(forecast, job, chosen)}. All jobs end in {duration(makespan / 1000)}"
    if makespan != base_makespan:
        otherwise = "if it waited" if waits else "otherwise"
        text += f" instead of {duration(base_makespan / 1000)} {otherwise}"
    else:
        text += " either way" if saved > 0 else ""
    if makespan >= base_makespan and saved > 0:
        text += f"; their completion times sum to {duration(saved / 1000)} less"
    return text + " (predicted)."


def _action_text(forecast: Forecast, job: JobView, chosen: RankedOption) -> str:
    """What the plan does, as a clause."""
    size, name, where = chosen.size, job.spec.name, " and ".join(chosen.hosts)
    if not job.size:
        text = f"{name} starts on {gpus(size)} of {where}"
    elif chosen.stays(job):
        text = f"{name} grows from {job.size} to {gpus(size)}"
        text += f" of {where}" if job.shares else ""
    else:
        before = " and ".join(job.all_hosts)
        text = f"{name} moves from {gpus(job.size)} of {before} to {size} of {where}"
        if forecast.gpu_type(chosen.host) != job.gpu_type:
            text += f", from {job.gpu_type} to {forecast.gpu_type(chosen.host)}"
    return text + "".join(_donor_texts(forecast, job, chosen))


def _donor_texts(forecast: Forecast, newcomer: JobView, chosen: RankedOption) -> list[str]:
    """What happens to each donor, as clauses."""
    if not chosen.shrinks:
        return []
    predictor, texts = forecast.predictor, []
    donors = [(forecast.running(donor), keeps) for donor, keeps in chosen.shrinks]
    release_s = max([predictor.release_s(donor) for donor, _ in donors])
    gpu_type = forecast.gpu_type(chosen.host)
    on = len(chosen.hosts)
    end = to_ms(predictor.incoming_s(newcomer, gpu_type, chosen.size, hosts=on) + release_s)
    for donor, keeps in donors:
        donor_end, returns = candidates.donor_end_ms(forecast, donor, keeps, end)
        text = f"; {donor.spec.name} goes from {donor.size} to {keeps}"
        text += f" on {' and '.join(donor.all_hosts)}" if donor.shares else ""
        if returns:
            lost_s = (donor_end - forecast.end_ms(donor)) / 1000
            text = f"; {donor.spec.name} lends {donor.size - keeps} of its {gpus(donor.size)}"
            text += f" for {duration(end / 1000)} and loses {duration(lost_s)}"
        texts.append(text)
    return texts
