"""Heal: acts on held jobs as the advisor advises, within budgets, and writes down all of it."""

from headway.heal.rules import Rules

__all__ = ["Rules"]
