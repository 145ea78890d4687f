"""The ontology: ontology/*.yaml -> the kinds of question there are, each under an id: `common_sense.time.order`.

Common sense: category -> sub-category. Embodied reasoning: agent × (capability or question type), because a question
about an agent either exercises one of its capabilities or is one of the three measurable question types.
"""

from __future__ import annotations

import functools

from pydantic import BaseModel, ConfigDict

from cosmos_reason import config


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Entry(_Model):
    """One thing that a question can be about. Example: id "order", title "Order", asks "in which sequence …"."""

    id: str
    title: str
    asks: str


class Category(_Model):
    """A group of sub-categories, e.g. "time"."""

    id: str
    title: str
    entries: tuple[Entry, ...]


class CommonSense(_Model):
    """`ontology/common_sense.yaml`."""

    id: str
    title: str
    categories: tuple[Category, ...]


class Capability(Entry):
    """What an embodied agent must be able to do; `examples` has one question per agent id."""

    evaluated: bool
    examples: dict[str, str]


class Agent(_Model):
    """Who acts. `nature` is "natural" or "robotic"."""

    id: str
    title: str
    nature: str


class Embodied(_Model):
    """`ontology/embodied.yaml`."""

    id: str
    title: str
    agents: tuple[Agent, ...]
    capabilities: tuple[Capability, ...]
    question_types: tuple[Entry, ...]


@functools.cache
def common_sense() -> CommonSense:
    """Physical common sense as shipped: three categories, sixteen sub-categories."""
    return config.load(config.data_folder("ontology") / "common_sense.yaml", CommonSense)


@functools.cache
def embodied() -> Embodied:
    """Embodied reasoning as shipped: four capabilities by five agents, three question types."""
    return config.load(config.data_folder("ontology") / "embodied.yaml", Embodied)


@functools.cache
def ids() -> dict[str, str]:
    """Every id that a `Sample.ontology` may hold -> its title in words, e.g. "Time: Order"."""
    space, body = common_sense(), embodied()
    sub_categories = {f"{space.id}.{c.id}.{e.id}": f"{c.title}: {e.title}" for c in space.categories for e in c.entries}
    abilities: tuple[Entry, ...] = (*body.capabilities, *body.question_types)
    cells = {f"{body.id}.{a.id}.{e.id}": f"{a.title}: {e.title}" for a in body.agents for e in abilities}
    return sub_categories | cells
