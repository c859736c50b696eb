"""Pictures of cart-pole, acrobot, pendulum and mountain car, from their states."""

from __future__ import annotations

import math

import numpy as np

from isobatch.envs.interface import State
from isobatch.rendering.canvas import BLUE, FAINT, GREEN, INK, MEADOW, PAPER, RED, WOOD, Canvas, Point, Size


def cart_pole(state: State, obs: np.ndarray, size: Size) -> np.ndarray:
    x, theta = float(state.x), float(state.theta)
    canvas = Canvas(size, -2.8, -0.7, 2.8, 1.5)
    for end in (-2.4, 2.4):  # an episode ends here
        canvas.line([(end, -0.42), (end, -0.18)], RED, 0.04)
    canvas.line([(-2.8, -0.3), (2.8, -0.3)], INK, 0.03)
    canvas.polygon([(x - 0.36, -0.18), (x + 0.36, -0.18), (x + 0.36, 0.14), (x - 0.36, 0.14)], INK)
    for wheel in (-0.2, 0.2):
        canvas.circle((x + wheel, -0.2), 0.1, BLUE)
    canvas.line([(x, 0.08), (x + 1.1 * math.sin(theta), 0.08 + 1.1 * math.cos(theta))], WOOD, 0.14)
    canvas.circle((x, 0.08), 0.06, BLUE)
    return canvas.image()


def acrobot(state: State, obs: np.ndarray, size: Size) -> np.ndarray:
    first, second = float(state.joint_angle1), float(state.joint_angle1 + state.joint_angle2)
    elbow = (math.sin(first), -math.cos(first))
    tip = (elbow[0] + math.sin(second), elbow[1] - math.cos(second))
    canvas = Canvas(size, -2.3, -2.3, 2.3, 2.3)
    for dash in np.arange(-2.2, 2.2, 0.2):  # the tip has to get above this
        canvas.line([(dash, 1), (dash + 0.08, 1)], RED, 0.03)
    canvas.line([(0, 0), elbow], BLUE, 0.2)
    canvas.line([elbow, tip], WOOD, 0.2)
    for joint in ((0.0, 0.0), elbow):
        canvas.circle(joint, 0.13, INK)
    return canvas.image()


def pendulum(state: State, obs: np.ndarray, size: Size) -> np.ndarray:
    theta, torque = float(state.theta), float(state.last_u)
    tip = (-math.sin(theta), math.cos(theta))
    canvas = Canvas(size, -1.4, -1.4, 1.4, 1.4)
    canvas.circle((0, 0), 1.2, FAINT)
    canvas.circle((0, 0), 1.185, PAPER)
    canvas.line([(0, 0), tip], RED, 0.2)
    if abs(torque) > 0.05:
        turn(canvas, torque)
    canvas.circle((0, 0), 0.06, INK)
    return canvas.image()


def turn(canvas: Canvas, torque: float) -> None:
    """An arrow around the axle, as long as the torque is strong; counter-clockwise is positive."""
    angles = np.linspace(0, torque / 2 * math.pi * 0.8, 24) - math.pi / 2
    arc: list[Point] = [(0.45 * math.cos(a), 0.45 * math.sin(a)) for a in angles]
    canvas.line(arc, INK, 0.045)
    end, forwards = float(angles[-1]), math.copysign(1, torque)
    (x, y), ahead = arc[-1], end + forwards * math.pi / 2
    corners = [(ahead, 0.18), (ahead + 2.3, 0.13), (ahead - 2.3, 0.13)]
    canvas.polygon([(x + r * math.cos(a), y + r * math.sin(a)) for a, r in corners], INK)


def mountain_car(state: State, obs: np.ndarray, size: Size, goal: float) -> np.ndarray:
    x = float(state.position)
    slope = math.atan(3 * 0.45 * math.cos(3 * x))
    canvas = Canvas(size, -1.2, -0.05, 0.6, 1.3)
    ridge = [(float(p), _height(p)) for p in np.linspace(-1.2, 0.6, 80)]
    canvas.polygon([(-1.2, -0.05), *ridge, (0.6, -0.05)], MEADOW)
    canvas.line(ridge, GREEN, 0.012)
    top = _height(goal) + 0.2
    canvas.line([(goal, _height(goal)), (goal, top)], INK, 0.01)
    canvas.polygon([(goal, top), (goal - 0.1, top - 0.035), (goal, top - 0.07)], RED)

    def place(along: float, above: float) -> Point:
        """A point of the car, from the middle of its underside."""
        return (
            x + along * math.cos(slope) - above * math.sin(slope),
            _height(x) + along * math.sin(slope) + above * math.cos(slope),
        )

    body = [(-0.09, 0.03), (0.09, 0.03), (0.09, 0.07), (0.045, 0.11), (-0.045, 0.11), (-0.09, 0.07)]
    canvas.polygon([place(*corner) for corner in body], INK)
    for wheel in (-0.05, 0.05):
        canvas.circle(place(wheel, 0.03), 0.03, BLUE)
    return canvas.image()


def _height(position: float) -> float:
    return math.sin(3 * position) * 0.45 + 0.55
