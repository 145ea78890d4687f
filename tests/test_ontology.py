"""The ontology: its shape, and that no code speaks of an entry that does not exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import cosmos_reason
from cosmos_reason import ontology

ID = re.compile(r"(common_sense|embodied)\.\w+\.\w+")


def test_common_sense_has_three_categories_and_sixteen_sub_categories():
    assert {c.id: len(c.entries) for c in ontology.common_sense().categories} == {"space": 4, "time": 5, "physics": 7}


def test_embodied_is_four_capabilities_by_five_agents_with_an_example_in_every_cell():
    body = ontology.embodied()
    agents = [agent.id for agent in body.agents]
    assert [a.id for a in body.agents if a.nature == "natural"] == ["human", "animal"]
    assert [a.id for a in body.agents if a.nature == "robotic"] == ["robot_arm", "humanoid", "vehicle"]
    assert len(body.capabilities) == 4
    assert [list(c.examples) for c in body.capabilities] == [agents] * 4
    assert [c.id for c in body.capabilities if not c.evaluated] == ["learn"]
    assert [t.id for t in body.question_types] == ["verification", "affordance", "next_action"]


def test_ids_are_unique_and_lead_to_titles():
    ids = ontology.ids()
    assert len(ids) == 16 + 5 * (4 + 3)
    assert ids["common_sense.time.order"] == "Time: Order"
    assert ids["embodied.robot_arm.next_action"] == "Robot arm: Next plausible action"
    assert all(ID.fullmatch(key) for key in ids)


def test_every_id_written_in_the_library_exists():
    unknown = []
    for path in Path(cosmos_reason.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and ID.fullmatch(node.value):
                unknown += [] if node.value in ontology.ids() else [f"{path.name}:{node.lineno} {node.value}"]
    assert not unknown, f"no such ontology entry: {unknown}"
