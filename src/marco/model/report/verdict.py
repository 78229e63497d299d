"""One sentence on how good a model is."""

from marco.model.report.component import ComponentReport
from marco.model.report.summary import ModelReport


def verdict(report: ModelReport) -> str:
    """The quality of the dynamics, by the strongest evidence there is, and the reward's on held-out rows."""
    parts = {part.component: part for part in report.components}
    claims = [_dynamics(report, parts.get("dynamics")), _reward(parts.get("reward"))]
    begin = f"The model of {report.environment}, from {report.samples:,} real steps: "
    idle = [part.component for part in report.components if part.learned_nothing]
    if idle:
        claims.append(f"NOTHING LEARNED of {', '.join(idle)}: no better than frequencies and means")
    return begin + "; ".join(claim for claim in claims if claim) + "."


def _dynamics(report: ModelReport, part: ComponentReport | None) -> str:
    if report.exact is not None:
        found = report.exact.visited_total_variation
        grade = _grade(found, 0.01, 0.05, 0.2)
        return f"{grade} dynamics (total variation from the true ones {found:.4f}, mean over the data)"
    if part is None:
        return "known dynamics"
    if part.continuous:
        worst = max(part.continuous, key=lambda one: one.normalised_rmse)
        grade = _grade(worst.normalised_rmse, 0.05, 0.2, 0.5)
        return (
            f"{grade} dynamics (held-out error at most {worst.normalised_rmse:.3f} standard deviations, "
            f"for {worst.feature})"
        )
    return f"dynamics of {part.loss:.3f} nats per held-out row, of which an unknown share is chance"


def _reward(part: ComponentReport | None) -> str:
    if part is None:
        return ""
    if part.continuous:
        return f"rewards with an error of {part.continuous[0].normalised_rmse:.3f} standard deviations"
    return f"rewards right in {100 * part.categorical[0].accuracy:.1f}% of held-out rows"


def _grade(error: float, *limits: float) -> str:
    grades = ("nearly exact", "good", "rough", "poor")
    return grades[sum(error >= limit for limit in limits)]
