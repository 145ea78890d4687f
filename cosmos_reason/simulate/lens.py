"""Where things are in the picture, and whether they can be seen: Record -> ObjectTrack, by geometry alone.

Boxes are projected surface points, clipped to the picture. Visibility is counted by rays on a 7×7 grid over the box:
rays that would meet the thing were it alone are its own pixels, those that meet it first are its seen pixels.
"""

from __future__ import annotations

import numpy as np

from cosmos_reason.simulate.bodies import surface_points
from cosmos_reason.simulate.film import FRAMES, STEPS_PER_FRAME, Record
from cosmos_reason.types import ObjectTrack

import mujoco  # isort: skip  (after film, which chooses how MuJoCo draws)

VISIBLE_SHARE = 0.1  # of its own pixels, for a thing to count as visible
PROBES = 7  # rays per side of a box


def tracks(record: Record) -> tuple[ObjectTrack, ...]:
    """Every thing over the frames, in the order of the scene."""
    lens = Lens(record)
    seen = [lens.frame(t) for t in range(FRAMES)]
    return tuple(
        ObjectTrack(
            thing.name, thing.colour, thing.shape, thing.role,
            record.pos_m_SN3[::STEPS_PER_FRAME, i],
            np.stack([frame[i][0] for frame in seen]),
            np.stack([frame[i][1] for frame in seen]),
            np.array([frame[i][2] >= VISIBLE_SHARE for frame in seen]),
        )
        for i, thing in enumerate(record.scene.things)
    )  # fmt: skip


class Lens:
    """The camera of a record as a projection."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._eye, self._axes = record.scene.look.camera()
        self._scale = 500.0 / np.tan(np.radians(record.scene.look.fovy_deg) / 2)
        self._data = mujoco.MjData(record.model)
        mujoco.mj_forward(record.model, self._data)

    def project(self, points_N3: np.ndarray) -> np.ndarray:
        """(N, 2) picture coordinates 0–1000 of world points (N, 3)."""
        local = (points_N3 - self._eye) @ self._axes
        return 500.0 + self._scale * local[:, :2] * (1, -1) / -local[:, 2:]

    def frame(self, frame: int) -> list[tuple[np.ndarray, np.ndarray, float]]:
        """Per thing: centre (2,), box (4,) and the seen share of its own pixels."""
        record = self._record
        record.pose(self._data, frame)
        geoms = [record.geom(i) for i in range(len(record.scene.things))]
        centres_N2 = self.project(record.pos_m_SN3[frame * STEPS_PER_FRAME])
        boxes = [self._box(i, geom) for i, geom in enumerate(geoms)]
        result = []
        for i, (geom, box) in enumerate(zip(geoms, boxes, strict=True)):
            # Nothing can hide a thing that no other box reaches; a removed one must be looked for.
            alone = not record.scene.removes and not any(j != i and _meet(box, b) for j, b in enumerate(boxes))
            whole = alone and bool((box == np.clip(box, 0.0, 1000.0)).all())
            result.append((centres_N2[i], np.clip(box, 0.0, 1000.0), 1.0 if whole else self._seen_share(geom, box)))
        return result

    def _box(self, index: int, geom: int) -> np.ndarray:
        """(4,) box of the projected surface; may reach out of the picture."""
        centre, axes = self._data.geom_xpos[geom], self._data.geom_xmat[geom].reshape(3, 3)
        towards = (centre - self._eye) / np.linalg.norm(centre - self._eye)
        corners = self.project(surface_points(self._record.scene.things[index], towards @ axes) @ axes.T + centre)
        return np.concatenate([corners.min(0), corners.max(0)])

    def _seen_share(self, geom: int, box: np.ndarray) -> float:
        """Seen rays over own rays, 0.0 where no ray over the box meets the thing."""
        steps = (np.arange(PROBES) + 0.5) / PROBES
        x, y = np.meshgrid(box[0] + steps * (box[2] - box[0]), box[1] + steps * (box[3] - box[1]))
        spots = np.stack([x.ravel(), y.ravel()], 1)
        rays = ((spots - 500.0) * (1, -1) / self._scale) @ self._axes[:, :2].T - self._axes[:, 2]
        rays /= np.linalg.norm(rays, axis=1, keepdims=True)
        model, data = self._record.model, self._data
        shape = data.geom_xpos[geom], data.geom_xmat[geom], model.geom_size[geom]
        own = np.array([mujoco.mju_rayGeom(*shape, self._eye, ray, model.geom_type[geom]) >= 0 for ray in rays])
        rays = rays[own & ((spots > 0) & (spots < 1000)).all(axis=1)]
        hits, far = np.full(len(rays), -1, dtype=np.int32), np.empty(len(rays))
        if len(rays):
            mujoco.mj_multiRay(model, data, self._eye, rays.ravel(), None, 1, -1, hits, far, len(rays), mujoco.mjMAXVAL)
        return float((hits == geom).sum()) / max(1, int(own.sum()))


def _meet(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((one[:2] < other[2:]).all() and (other[:2] < one[2:]).all())
